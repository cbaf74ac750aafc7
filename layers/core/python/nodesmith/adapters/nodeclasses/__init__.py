"""Resolution of an EC2NodeClass's selectors and names to resources of this account."""
