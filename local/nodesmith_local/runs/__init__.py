"""A local system and what happens in it: its parts, one run, its timeline, and its report."""
