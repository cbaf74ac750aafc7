"""What the caller of `nodesmith connect` wants, and the registration that this makes of what is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodesmith.errors import Rejected
from nodesmith.model.functions.hints import TALKING, Concern
from nodesmith.registration import (
    Registration,
    read_registration,
)
from nodesmith.settings import role_name
from nodesmith_cli.connecting.observed import Account

_READER = frozenset({Concern.OBSERVATION})
NODE_POLICIES = (
    "AmazonEKSWorkerNodePolicy",
    "AmazonEKS_CNI_Policy",
    "AmazonEC2ContainerRegistryPullOnly",
    "AmazonSSMManagedInstanceCore",
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for. `vpc` and `node_role` are None where the caller says nothing: what is there stays.

    `settings` are those to write; an empty text takes a setting away.
    """

    cluster: str
    vpc: str | None = None
    node_role: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    is_to_switch_mode: bool = False
    is_to_tag: bool = True


def default_node_role(cluster: str) -> str:
    """Name the role for nodes that every deployment may pass."""
    return f"KarpenterNodeRole-{cluster}"


def readable(cluster: str, text: str | None) -> Registration | None:
    """Read a registration; None where there is none, or none that can be read."""
    try:
        return None if text is None else read_registration(cluster, text, of_any_release=True)
    except Rejected:
        return None


def registration(wanted: Wanted, account: Account) -> Registration:
    """Return the registration that the cluster is to have: what it has, with what is asked for."""
    known = readable(wanted.cluster, account.parameter)
    first = wanted.node_role or (known.node_roles[0] if known else default_node_role(wanted.cluster))
    others = known.node_roles if known else ()
    settings = {**(known.settings if known else {}), **wanted.settings}
    return Registration(
        wanted.cluster,
        account.cluster.vpc_id,
        tuple(dict.fromkeys([first, *others])),
        wanted.vpc if wanted.vpc is not None else (known.reached_from if known else ""),
        {name: value for name, value in settings.items() if value},
    )


def function_entries(account: Account, reached_from: str) -> dict[str, str]:
    """Return the users that functions are to be in the cluster, by the ARNs of their roles."""
    return {
        account.role_arn(role_name(concern, account.region, reached_from)): username(concern)
        for concern in TALKING
    }


def username(concern: Concern) -> str:
    """Name the user of a concern: EKS puts the name of the session there, which is the cluster's."""
    return f"nodesmith:{'reader' if concern in _READER else 'writer'}:{{{{SessionName}}}}"
