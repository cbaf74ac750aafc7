"""Messages between functions, and the records of their work."""
