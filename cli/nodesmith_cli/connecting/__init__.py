"""`nodesmith connect`, `disconnect` and `doctor`: connecting an EKS cluster to nodesmith, and disconnecting it.

`awsreading` and `clusterreading` read the current state into the values of `observed`. `problems` and `steps` are pure
functions of them. `carrying` carries out the steps, `manifests` builds the objects to install, and `waiting` waits for
the first snapshot.
"""
