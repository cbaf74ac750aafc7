"""`nodesmith shadow`: the daily costs of an observed cluster, and those that it would have had.

`report` turns what the functions have kept into JSON data, `output` shows that, and `placements` has the audit check
where the shadow puts the pods of a live cluster.
"""
