"""Pods are pending, or a tick says look: buy the nodes they need."""

from nodesmith import runtime

handler = runtime.provisioning()
