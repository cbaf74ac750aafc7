"""Formats that both the commands and the simulator read and write, without the libraries of either.

`manifests/` reads YAML files. `kubernetes/` knows the API server's own kinds: fields, defaults, and what it refuses.
`decisions/` finds and sums up decision records. `localsystem/` finds a running `nodesmith local up`. `crds` writes
CustomResourceDefinitions, `catalogfiles` reads catalogues that users provide, and `nodeclaims` reads claims without
the ledger. `shipped` finds the files that a wheel contains, `prices` the price of a node, and `wording` writes counts,
times and lists of names.
"""
