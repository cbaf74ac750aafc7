"""The composition root: what Lambda calls, where adapters meet ports, and how events reach the controllers."""
