"""`nodesmith migrate`: node groups of an EKS cluster as NodePools and EC2NodeClasses that serve the same pods.

`reading` reads the groups from AWS, `fields` accounts for each of their fields, `nodeclasses`, `images`, `userdata`,
`pools` and `types` convert them, `merging` joins groups with identical nodes, `placing` plans the cluster's pods on the
result, and `command` implements the command.
"""
