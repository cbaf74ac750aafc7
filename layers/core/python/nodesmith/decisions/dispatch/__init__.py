"""Decisions of dispatch: which concerns to wake, and what is wrong with a deployment."""
