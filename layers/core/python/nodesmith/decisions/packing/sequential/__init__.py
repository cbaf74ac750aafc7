"""Sequential filling: one node after another, for items of very many kinds."""
