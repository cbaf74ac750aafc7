"""`nodesmith ui`: a local web page about a cluster: now, why, what next, proof, health and history.

`sources` says where decisions and the ledger are, and `archive` reads decisions in the background. `looks` takes looks
at the Fleet that `nodesmith top` keeps as well. `live`, `kept` and `history` return what the pages show; `fleetmap`,
`riskmap` and `charts` lay out drawings. `server` has the routes, and `gate` decides who may call them.
"""
