"""The `nodesmith` command.

`main` says which commands there are and imports nothing else before one of them is chosen. `localcommands/` runs the
simulator; `explain` reads what a decision left behind.
"""
