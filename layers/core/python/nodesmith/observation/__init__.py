"""Kubernetes objects → snapshot: what the forwarder and the observation function write, and every decision reads.

`podreduction` and `reduction` keep what a decision reads and nothing else; `wire` is the snapshot as bytes. Nothing in
here knows a client: objects are the API's own JSON.
"""
