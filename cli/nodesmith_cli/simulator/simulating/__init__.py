"""`nodesmith simulate`: read a recorded workload, apply changes, simulate both sides, and compare them.

`slots`, `recorded`, `auditlog` and `kubereplay` read workloads. `changes` applies what is asked. `sides` runs the
simulations, `report` compares them, and `table` and `page` show the result.
"""
