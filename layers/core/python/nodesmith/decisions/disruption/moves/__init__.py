"""Moves under way: what is to be done next."""
