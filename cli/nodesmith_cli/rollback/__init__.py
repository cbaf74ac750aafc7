"""Taking a deployment back: the functions of a region serve by an earlier release again."""
