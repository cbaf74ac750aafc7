"""What nodes cost and whom: cost allocation, settings about commitments, the account of shadows."""
