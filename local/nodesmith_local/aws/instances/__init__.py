"""EC2's instances: fleets and pools of capacity, booting, joining the cluster, and interruptions."""
