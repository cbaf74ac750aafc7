"""`nodesmith connect`, `disconnect` and `doctor`: from an EKS cluster to one that is served, and back.

`awsreading` and `clusterreading` look, `observed` holds what they saw. `problems` and `steps` judge it, purely.
`carrying` does what steps say, `manifests` makes what is installed, `waiting` waits for the first snapshot.
"""
