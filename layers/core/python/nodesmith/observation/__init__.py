"""Kubernetes objects → snapshot: what the forwarder and the observation function write, and every decision reads.

The reductions keep what a decision reads and nothing else, `volumes` and `attachments` say what volumes ask of nodes,
`wire` is the snapshot as bytes. Nothing in here knows a client: objects are the API's own JSON.
"""
