"""Objects reduced to what a decision reads."""
