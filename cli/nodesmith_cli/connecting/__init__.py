"""`nodesmith connect`, `disconnect` and `doctor`: connecting an EKS cluster to nodesmith, and disconnecting it.

`reading/` reads the current state into the values of `observed`. `checks/` finds problems, and `steps/` derives the
steps and carries them out. `manifests` builds the objects to install, and `waiting` waits for the first snapshot.
"""
