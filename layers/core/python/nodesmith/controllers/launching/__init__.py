"""Nodes are bought: intents are committed, EC2 is asked, and pods are told."""
