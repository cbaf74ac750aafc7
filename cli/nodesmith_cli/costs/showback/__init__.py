"""Showback: what cost allocation has booked, by month, owner and move."""
