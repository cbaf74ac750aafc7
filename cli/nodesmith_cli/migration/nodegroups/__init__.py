"""`nodesmith migrate`: node groups of an EKS cluster as NodePools and EC2NodeClasses that serve the same pods.

`reading` reads the groups from AWS, `fields` accounts for each of their fields. `pools` with `types`, and `nodeclasses`
with `images`, `network` and `userdata`, convert them. `merging` joins groups with identical nodes, `proving` checks the
result, `placing` plans the cluster's pods on it, and `command` implements the command.
"""
