"""The `nodesmith` command.

`main` says which commands there are and imports nothing else before one of them is chosen. `local/` is the whole system
on a laptop; `explain` reads what a decision left behind.
"""
