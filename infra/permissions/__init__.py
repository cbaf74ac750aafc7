"""What functions may do: grants, and which of them each function has."""
