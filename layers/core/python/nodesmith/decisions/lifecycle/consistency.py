"""Whether a Node has the resources that its claim was bought with: Karpenter's check of the node's shape."""

from __future__ import annotations

from dataclasses import replace

from nodesmith.model.apimachinery.resources import CPU, MEMORY, Resources, format_amount
from nodesmith.model.commands import Wait
from nodesmith.model.ec2.attachablevolumes import ATTACHABLE
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.nodes import Node

_LEAST_SHARE = 0.9
"""Karpenter's threshold: a node with less than this share of an expected resource is inconsistent."""


def shortfalls(claim: NodeClaim, node: Node) -> dict[str, str]:
    """Return the requested resources of which a Node shows less than 90 % of what its claim expects, with messages."""
    found: dict[str, str] = {}
    for name, asked in claim.requests.items():
        expected, shown = claim.capacity.of(name), node.capacity.of(name)
        if asked and not name.startswith(ATTACHABLE) and shown < _LEAST_SHARE * expected:
            amounts = f"{format_amount(name, shown)} {name} of {format_amount(name, expected)}"
            found[name] = f"the Node shows {amounts} that were expected"
    return found


def capacity_of(claim: NodeClaim, node: Node) -> Resources:
    """Return the capacity of an initialized claim: what its Node shows, or what was expected if that is too little.

    NodePool limits are compared with it. CPU and memory therefore never count for less than 90 % of what was bought,
    whether they were requested or not: a Node that shows too little does not leave room for more nodes.
    """
    expected = {name: claim.capacity.of(name) for name in (CPU, MEMORY, *shortfalls(claim, node))}
    lacking = {name: most for name, most in expected.items() if node.capacity.of(name) < _LEAST_SHARE * most}
    return Resources({**node.capacity, **lacking})


def checked(claim: NodeClaim, node: Node) -> NodeClaim:
    """Return the claim with a message on what its Node lacks, or the claim itself if nothing has changed."""
    lacking = "; ".join(why for _, why in sorted(shortfalls(claim, node).items()))
    return claim if lacking == claim.inconsistency else replace(claim, inconsistency=lacking)


def check(claim: NodeClaim, node: Node) -> Wait | None:
    """Return a command that records a change in what the Node lacks, None if nothing has changed."""
    after = checked(claim, node)
    return None if after is claim else Wait(after)
