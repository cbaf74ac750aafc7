"""The ledger: what nodesmith knows of one cluster and the cluster does not."""
