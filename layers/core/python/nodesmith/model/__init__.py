"""The domain model: frozen values and their arithmetic.

This package represents the terms of Kubernetes, Karpenter and EC2 as data. It does no I/O, reads no clock, uses no
randomness and writes no logs, so a test can build everything here by calling its constructor.
"""
