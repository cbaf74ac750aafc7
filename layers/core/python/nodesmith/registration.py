"""Registrations: the configuration of each cluster that nodesmith serves, one SSM parameter for each cluster.

A registration is JSON, for example:

    {"format": 1, "vpcId": "vpc-0123456789abcdef0", "nodeRoles": ["KarpenterNodeRole-web"], "reachedFrom": "",
     "settings": {"RESERVED_ENIS": "1"}}
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from nodesmith.errors import Rejected
from nodesmith.model.policies import LIMIT_PARAMETERS as LIMIT_PARAMETERS
from nodesmith.settings import Settings, read_settings

FORMAT = 1
PARAMETERS = "/nodesmith/clusters"
"""The path that contains a parameter for each cluster that is served."""
OBSERVED_PARAMETERS = "/nodesmith/observed"
"""The same for clusters that are only observed. The roles of most functions cannot read it."""
CANARY_PARAMETER = "/nodesmith/canary"
"""The parameter with the clusters that a release on trial serves (`Trial` as JSON). Absent without such a release."""
CLUSTER_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{1,63}", re.ASCII)
"""EKS's rule, but with 2 to 64 characters, because the cluster's name is the session name of functions."""
VPC_ID = re.compile(r"vpc-([0-9a-f]{8}|[0-9a-f]{17})", re.ASCII)
LONGEST_VALUE = 4096
"""The size limit in bytes of a parameter of the standard tier, which is the free one."""
LONGEST_ROLE_NAME = 64
"""IAM's limit, without the path."""
ROLE_NAME = re.compile(r"[\w+=,.@/-]{1,512}", re.ASCII)
VPC_NAME = re.compile(r"[a-z][a-z0-9-]{0,15}", re.ASCII)
"""The name of a VPC in cdk.json. It is part of the names of functions and roles, which have at most 64 characters."""
CLUSTER_TAG, VPC_TAG = "nodesmith-cluster", "nodesmith-vpc"
"""The tags of the session in which a function works for a cluster. The names are valid in IAM policy variables."""
_KEYS = ("format", "vpcId", "nodeRoles", "reachedFrom", "settings")
_OF_DEPLOYMENT = frozenset(
    {
        "AWS_REGION",
        "BUCKET_NAME",
        "CLOUDWATCH_METRICS",
        "CLUSTER_NAME",
        "COMMITMENTS",
        "DEFAULT_NODE_ROLE",
        "QUEUE_URL",
        "RELEASE",
        "SESSION_ROLE_ARN",
        "TABLE_NAME",
        "VPC_ID",
        "VPC_NAME",
    }
)
SETTINGS = {
    about.metadata["env"]: about.metadata
    for about in fields(Settings)
    if about.metadata["env"] not in _OF_DEPLOYMENT
}
"""Name in the `settings` of a registration → its metadata: how to read it, and what it means."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A cluster that nodesmith serves.

    `vpc_id` is the VPC of its nodes. `node_roles` are the IAM roles that its nodes may have; the first is the default.
    `reached_from` is the name of the VPC from which functions reach its API server, empty for a public endpoint.
    `settings` are texts by the names in `SETTINGS`. An `observed` cluster is watched and never changed:
    its registration is under another path, with the same content.
    """

    cluster: str
    vpc_id: str
    node_roles: tuple[str, ...]
    reached_from: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    observed: bool = False

    def to_json(self) -> str:
        """Write the value of the parameter."""
        value = {
            "format": FORMAT,
            "vpcId": self.vpc_id,
            "nodeRoles": list(self.node_roles),
            "reachedFrom": self.reached_from,
            "settings": dict(sorted(self.settings.items())),
        }
        return json.dumps(value, separators=(",", ":"))


def parameter_name(cluster: str, *, observed: bool = False) -> str:
    """Return the name of the parameter with a cluster's registration."""
    return f"{OBSERVED_PARAMETERS if observed else PARAMETERS}/{cluster}"


def default_node_role(cluster: str) -> str:
    """Return the name of the node role that every deployment may pass to instances of a cluster."""
    return f"KarpenterNodeRole-{cluster}"


def read_registration(
    cluster: str, text: str, *, of_any_release: bool = False, observed: bool = False
) -> Registration:
    """Read the value of a cluster's parameter. Raises Rejected with every fault and what would be right.

    An unknown key is a fault unless `of_any_release` is True, since a later release may have written it. Unknown
    settings are then kept, so that writing the registration again preserves them.
    """
    source = f"SSM parameter {parameter_name(cluster, observed=observed)}"
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Rejected(f"{source}: expected a JSON object, found {text[:80]!r} ({error})") from None
    faults = list(registration_faults(cluster, _known_settings(raw) if of_any_release else raw))
    if faults:
        raise Rejected(f"{source}: {'; '.join(faults)}")
    return Registration(
        cluster,
        raw["vpcId"],
        tuple(raw["nodeRoles"]),
        raw.get("reachedFrom", ""),
        _settings(raw.get("settings", {})),
        observed,
    )


def _settings(values: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: value for name, value in values.items() if isinstance(value, str) and name not in _OF_DEPLOYMENT
    }


def _known_settings(raw: Any) -> Any:
    """Return the value without keys and settings that only a later release knows."""
    if not isinstance(raw, dict):
        return raw
    readable = {key: value for key, value in raw.items() if key in _KEYS}
    settings = readable.get("settings")
    if isinstance(settings, dict):
        readable["settings"] = {name: value for name, value in settings.items() if name in SETTINGS}
    return readable


def settings_of(registration: Registration, deployment: Settings) -> Settings:
    """Return the settings with which a function of a deployment serves a cluster."""
    texts = {"AWS_REGION": deployment.region, **registration.settings}
    own_settings = read_settings(texts)
    return replace(
        own_settings,
        cluster_name=registration.cluster,
        vpc_id=registration.vpc_id,
        default_node_role=registration.node_roles[0],
        table_name=deployment.table_name,
        bucket_name=deployment.bucket_name,
        queue_url=deployment.queue_url,
        release=deployment.release,
        vpc_name=deployment.vpc_name,
        session_role_arn=deployment.session_role_arn,
        commitments=deployment.commitments,
        notifications=own_settings.notifications and deployment.notifications,
    )


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial of a `release`, which serves some clusters while the previous release serves all others.

    `ended` is why the trial has ended, empty while it is running.
    """

    clusters: frozenset[str]
    release: str = ""
    ended: str = ""

    def to_json(self) -> str:
        """Write the value of the parameter."""
        value = {"clusters": sorted(self.clusters), "release": self.release}
        return json.dumps({**value, **({"ended": self.ended} if self.ended else {})}, separators=(",", ":"))


NO_TRIAL = Trial(frozenset())
TRIAL_SUFFIX = "-trial"
"""Ends the names of releases that were deployed on trial: a rollback does not return to one by itself."""


def read_trial(text: str) -> Trial:
    """Read the value of the parameter. Raises Rejected with what would be right."""
    expected = f"SSM parameter {CANARY_PARAMETER}: expected an object with 'clusters', found {text[:80]!r}"
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        raise Rejected(expected) from None
    clusters = raw.get("clusters") if isinstance(raw, dict) else None
    if not isinstance(clusters, list) or not all(isinstance(name, str) for name in clusters):
        raise Rejected(expected)
    return Trial(frozenset(clusters), str(raw.get("release", "")), str(raw.get("ended", "")))


def registration_faults(cluster: str, raw: Any) -> Iterator[str]:
    """Yield the faults of a cluster's name and of the value of its parameter."""
    if not CLUSTER_NAME.fullmatch(cluster):
        yield f"name: expected 2 to 64 letters, digits, - and _, found {cluster!r}"
    if not isinstance(raw, dict):
        yield f"expected an object with {', '.join(_KEYS)}, found {str(raw)[:80]!r}"
        return
    yield from _unknown("", raw, _KEYS)
    if raw.get("format") != FORMAT:
        yield f"format: expected {FORMAT}, found {raw.get('format')!r}"
    vpc_id, roles, reached_from = raw.get("vpcId"), raw.get("nodeRoles"), raw.get("reachedFrom", "")
    if not isinstance(vpc_id, str) or not VPC_ID.fullmatch(vpc_id):
        yield f"vpcId: expected the id of the cluster's VPC, found {vpc_id!r}"
    if not isinstance(roles, list) or not roles:
        yield f"nodeRoles: expected a list of names of IAM roles, found {roles!r}"
    else:
        for at, role in enumerate(roles):
            if not isinstance(role, str) or not ROLE_NAME.fullmatch(role):
                yield f"nodeRoles[{at}]: expected the name (not the ARN) of an IAM role, found {role!r}"
    if reached_from and (not isinstance(reached_from, str) or not VPC_NAME.fullmatch(reached_from)):
        yield f"reachedFrom: expected the name of a VPC of cdk.json, found {reached_from!r}"
    yield from settings_faults("settings", raw.get("settings", {}))


def settings_faults(path: str, settings: Any) -> Iterator[str]:
    """Yield the faults of a cluster's settings. `path` is the key that contains them."""
    if not isinstance(settings, dict):
        yield f"{path}: expected an object of names and texts, found {settings!r}"
        return
    yield from _unknown(f"{path}.", settings, tuple(SETTINGS))
    for name, value in settings.items():
        if name not in SETTINGS:
            continue
        if not isinstance(value, str):
            yield f"{path}.{name}: expected text, found {value!r}"
            continue
        try:
            SETTINGS[name]["read"](value)
        except ValueError as error:
            yield f"{path}.{name}: {error}, found {value!r} ({SETTINGS[name]['meaning']})"


def _unknown(prefix: str, document: Mapping[str, Any], known: tuple[str, ...]) -> Iterator[str]:
    for key in sorted(set(document) - set(known)):
        from nodesmith.model.apimachinery.problems import did_you_mean  # difflib is only needed for mistakes

        yield f"{prefix}{key}: unknown{did_you_mean(key, known) or ', use one of ' + ', '.join(known)}"
