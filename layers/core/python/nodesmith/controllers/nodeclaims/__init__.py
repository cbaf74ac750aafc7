"""What controllers write on NodeClaims, and what they keep about them from run to run."""
