"""Existing and in-flight nodes, and what they can still take."""
