"""`nodesmith top`: a live view of a cluster's nodes, pending pods and moves. It reads with the caller's own rights.

`updates` watches the cluster and reads usage, Events and prices. `fleet` keeps the observed state, and returns it as
a frozen `View` of `rows`. `screen` draws views in a terminal with the lines of `layout`, and `plain` writes sentences.
`actions` are the few writes, each after a confirmation.
"""
