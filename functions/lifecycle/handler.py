"""Nodes or claims changed, or a tick says look: bring every claim a step further."""

from nodesmith import runtime

handler = runtime.lifecycle()
