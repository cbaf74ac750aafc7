"""From Kubernetes objects to a snapshot, which the forwarder and the observation function write and decisions read.

The reductions keep only what decisions read. `volumes` determines what volumes require of nodes. `encoding` and
`decoding` write and read a snapshot as bytes. This package uses no client: objects are the API's JSON.
"""
