"""Pods of one shape after the other get their places."""
