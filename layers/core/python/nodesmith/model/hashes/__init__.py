"""Hashes that tell whether an object asks for the same as before."""
