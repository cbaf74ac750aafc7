"""EC2NodeClass: its fields, its status, and the part of it that affects nodes."""
