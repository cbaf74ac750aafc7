"""How commands reach clusters, AWS and ledgers with the caller's own credentials, and what they check before.

`awsclients`, `ledger`, `preconditions` and `selecting` import nothing slow: `commands/` imports them at the start.
"""
