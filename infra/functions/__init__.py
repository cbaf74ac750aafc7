"""The functions: what Lambda runs of each concern, what invokes it, and which version of it serves."""
