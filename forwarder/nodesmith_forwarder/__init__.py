"""The forwarder: it runs in the cluster, watches the API server, and sends hints to the functions.

It decides nothing and writes nothing in the cluster. `watching` follows the kinds that decisions read, `world` holds
reduced copies of them, `windows` and `triggers` determine when each concern is woken, and `forwarder` writes the
snapshot and sends the hints.
"""
