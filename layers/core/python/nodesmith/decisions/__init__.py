"""Decisions: pure functions from what is known to what must be done.

The same arguments give the same result on any machine. There is no clock, no randomness, no I/O and no logging, and
sets are always iterated in a total order.
"""
