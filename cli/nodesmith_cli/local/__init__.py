"""`nodesmith local`: the whole system in one process, without a cloud and without a cluster.

The outside is imitated (`apiserver/`, `cluster/`, `cloud/`); the forwarder, the functions and every decision are the
code that is deployed, woken by real messages. `system` puts it together, `clock` lets it run faster than life.
"""
