"""`nodesmith savings`: a cluster's current cost, and its cost on nodesmith's nodes. Nothing is written.

`reading` lists the cluster's objects, `owners` and `nodeprices` return the manager and the price of each node,
`assumptions` and `fleet` turn them into the inputs of nodesmith's own decisions, `repacking` runs these decisions, and
`capacity` and `constraints` find its causes. `report` puts the results together for `table` and `page`.
"""
