"""EC2: fleets, launch templates, instances."""
