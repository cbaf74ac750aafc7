"""The `nodesmith` command.

`main` says which commands there are and imports nothing else before one of them is chosen. `simulator/` has those
that run the simulator; `views/explaining/` reads what a decision left behind.
"""
