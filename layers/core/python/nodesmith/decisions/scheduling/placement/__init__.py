"""Placing the pods of one shape after another."""
