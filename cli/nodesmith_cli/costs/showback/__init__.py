"""Showback: the recorded cost allocation, by month, owner and move."""
