"""From demands to the nodes that hold them at the lowest price."""
