"""What NodePools may launch, and for which pods."""
