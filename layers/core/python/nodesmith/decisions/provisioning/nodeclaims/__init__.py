"""NodeClaims that users create."""
