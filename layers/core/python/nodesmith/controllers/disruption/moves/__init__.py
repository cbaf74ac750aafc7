"""Carrying out moves, one step at a time."""
