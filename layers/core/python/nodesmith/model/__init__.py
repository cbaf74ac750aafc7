"""The nouns: frozen values and the arithmetic that belongs to them.

Here live Kubernetes', Karpenter's and EC2's own terms as data. No I/O, no clock, no randomness, no logging: everything
in this room can be built in a test by calling its constructor.
"""
