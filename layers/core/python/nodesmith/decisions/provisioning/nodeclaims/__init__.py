"""NodeClaims that users have made."""
