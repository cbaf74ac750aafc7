"""`nodesmith savings`: a cluster's current cost, and its cost on nodesmith's nodes. Nothing is written.

`reading` lists the cluster's objects, `owners` and `nodeprices` say who manages each node and what it costs,
`assumptions` and `fleet` turn them into the inputs of nodesmith's own decisions, `repacking` asks these decisions, and
`capacity` and `constraints` find where the money is. `report` puts the results together for `table` and `page`.
"""
