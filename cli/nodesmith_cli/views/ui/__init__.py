"""`nodesmith ui`: a local web page about a cluster: now, why, what next, proof, health and history.

`sources` reads decisions and the ledger, and `archive` keeps decisions up to date in the background. `samples` takes
samples of the Fleet that `nodesmith top` shows as well. `pages` returns the data of the pages; `findings` lists
problems; `fleetmap`, `riskmap` and `charts` lay out drawings. `server` has the routes, and `access` protects them.
"""
