"""EC2's side of the model: the catalogue, instance types, launches and notices."""
