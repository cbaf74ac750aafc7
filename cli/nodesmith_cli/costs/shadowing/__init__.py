"""`nodesmith shadow`: the daily costs of an observed cluster, and those that it would have had.

`report` turns the stored observations into JSON data, and `output` shows them. `placements` lets the audit check where
the shadow puts the pods of a live cluster.
"""
