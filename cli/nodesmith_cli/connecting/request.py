"""The request of a `nodesmith connect` call, and the registration that results from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodesmith.errors import Rejected
from nodesmith.model.functions import TALKING, Concern
from nodesmith.registration import (
    Registration,
    default_node_role,
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
class ConnectRequest:
    """The options of a connect call. `vpc` and `node_role` are None to keep the registered values.

    `settings` are the settings to write. An empty value removes a setting.
    """

    cluster: str
    vpc: str | None = None
    node_role: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    is_to_switch_mode: bool = False
    is_to_tag: bool = True
    observes: bool | None = False
    """Whether the cluster is only observed; None for as it is registered."""


def readable(cluster: str, text: str | None) -> Registration | None:
    """Parse a registration. Returns None if there is none, or if it is unreadable."""
    try:
        return None if text is None else read_registration(cluster, text, of_any_release=True)
    except Rejected:
        return None


def registration(request: ConnectRequest, account: Account) -> Registration:
    """Return the new registration of the cluster: the current one, changed as requested."""
    observed = is_observed(request, account)
    existing = readable(
        request.cluster, account.parameter if account.parameter is not None else account.watched
    )
    first = request.node_role or (existing.node_roles[0] if existing else default_node_role(request.cluster))
    others = existing.node_roles if existing else ()
    settings = {**(existing.settings if existing else {}), **request.settings}
    return Registration(
        request.cluster,
        account.cluster.vpc_id,
        tuple(dict.fromkeys([first, *others])),
        request.vpc if request.vpc is not None else (existing.reached_from if existing else ""),
        {name: value for name, value in settings.items() if value},
        observed,
    )


def is_observed(request: ConnectRequest, account: Account) -> bool:
    """Return whether the cluster is only to be observed."""
    if request.observes is None:
        return account.parameter is None and account.watched is not None
    return request.observes


def concerns_with_api_access(*, observed: bool) -> tuple[Concern, ...]:
    """Return the concerns whose functions call the API server of a cluster; of an observed one, only the reader."""
    return tuple(concern for concern in TALKING if not observed or concern in _READER)


def function_entries(account: Account, reached_from: str, *, observed: bool = False) -> dict[str, str]:
    """Return the Kubernetes usernames of the functions, by the ARNs of their roles."""
    return {
        account.role_arn(role_name(concern, account.region, reached_from)): username(concern)
        for concern in concerns_with_api_access(observed=observed)
    }


def username(concern: Concern) -> str:
    """Return the username of a concern's function. EKS inserts the session name, which is the cluster's name."""
    return f"nodesmith:{'reader' if concern in _READER else 'writer'}:{{{{SessionName}}}}"
