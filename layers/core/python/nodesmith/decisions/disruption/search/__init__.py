"""The search for moves."""
