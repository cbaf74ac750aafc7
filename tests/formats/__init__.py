"""The formats in which functions persist and send, as each version writes them."""
