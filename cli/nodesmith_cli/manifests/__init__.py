"""What the commands on manifests do: `convert`, `hash` and `validate`."""
