"""The simulator: the whole system in one process, without a cloud and without a cluster.

`apiserver/`, `cluster/` and `aws/` imitate the outside; `controlplane/` runs Kubernetes' own programs instead. The
forwarder, the functions and every decision are the deployed code, and real messages wake them. `functions/` is their
runtime, `backends/` are the clusters, and `runs/` assembles a system and follows what happens in it. The clock can run
faster than real time.
"""
