"""The forwarder: it sits in the cluster, watches, and tells the functions outside when to look.

Nothing is decided here and nothing in the cluster is written. `watching` follows the kinds that decisions read, `world`
holds them reduced, `windows` and `triggers` say when there is news for whom, `forwarder` writes the snapshot and hints.
"""
