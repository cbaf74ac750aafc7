"""`nodesmith local`: the whole system in one process, without a cloud and without a cluster.

`apiserver/`, `cluster/` and `cloud/` imitate the outside. The forwarder, the functions and every decision are the
deployed code, and real messages wake them. `system` assembles the parts; `clock` can run faster than real time.
"""
