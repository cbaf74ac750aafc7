"""EC2NodeClass: its fields, its status, and what of it changes the nodes."""
