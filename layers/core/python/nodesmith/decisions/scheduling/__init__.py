"""Scheduling: where pods may go. On nodes that are there or coming, in which zones, on which types of which NodePool.

What may go where is decided here; which of the allowed nodes are bought is `packing`'s business.
"""
