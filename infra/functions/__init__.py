"""The Lambda functions of the concerns, what invokes each of them, and which of its versions serves."""
