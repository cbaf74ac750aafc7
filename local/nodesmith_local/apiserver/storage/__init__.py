"""The API server's objects: their history, and what happens when they are created, changed and deleted."""
