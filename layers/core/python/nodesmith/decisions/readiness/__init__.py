"""Which NodePools and EC2NodeClasses can be used, and what their objects show."""
