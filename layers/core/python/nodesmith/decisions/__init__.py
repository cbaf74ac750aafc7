"""The judgement: pure functions from what is known to what should be done.

The same arguments give the same answer on any machine. No clock, no randomness, no I/O, no logging; wherever a set is
walked, it is walked in a total order.
"""
