"""`nodesmith shadow`: what an observed cluster costs, and what it would have cost, day by day.

`report` turns what the functions have kept into JSON data, `output` shows that, and `placements` has the audit check
where the shadow puts the pods of a live cluster.
"""
