"""What nodes cost: `nodesmith savings`, `ledger` and `shadow`; commitments and spending limits for all commands."""
