"""The story of each concern, told once: load what is known, decide or ask, carry out, record.

One module per concern, named after it. A controller knows ports, never an outside system.
"""
