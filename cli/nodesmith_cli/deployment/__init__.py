"""What a deployment runs: `nodesmith image push` and `nodesmith rollback`."""
