"""What EC2 sells, launches and says: the catalogue, instance types, launches, notices."""
