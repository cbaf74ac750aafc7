"""One node after the other is filled, for items of very many kinds."""
