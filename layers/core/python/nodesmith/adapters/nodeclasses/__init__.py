"""What an EC2NodeClass's selectors and names resolve to in this account."""
