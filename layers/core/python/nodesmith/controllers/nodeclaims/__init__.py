"""What is written on NodeClaims and kept of them from run to run."""
