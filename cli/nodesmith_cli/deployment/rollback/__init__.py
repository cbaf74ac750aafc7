"""Rolling a deployment back: the functions of a region run an earlier release again."""
