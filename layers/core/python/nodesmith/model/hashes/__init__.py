"""Hashes that show whether an object's content has changed."""
