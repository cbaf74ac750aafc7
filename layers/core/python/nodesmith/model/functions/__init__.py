"""What functions tell each other, and what they record of their own work."""
