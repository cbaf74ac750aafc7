"""The story of each concern: load, decide, carry out. No rules live here, only their order."""
