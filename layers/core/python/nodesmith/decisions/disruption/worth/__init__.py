"""What a move saves, and what it costs."""
