"""The ledger: nodesmith's state for one cluster that is not in the cluster itself."""
