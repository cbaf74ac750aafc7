"""One cluster's access configuration in EKS: access entries, Pod Identity associations and add-ons."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from moto.eks.exceptions import (
    InvalidParameterException,
    InvalidRequestException,
    ResourceInUseException,
    ResourceNotFoundException,
)
from moto.iam import iam_backends
from moto.moto_api._internal import mock_random

_TYPES = frozenset({"STANDARD", "EC2_LINUX", "EC2_WINDOWS", "FARGATE_LINUX", "EC2", "HYBRID_LINUX"})
_GROUPS = {"EC2_LINUX": ("system:nodes",), "EC2_WINDOWS": ("system:nodes", "eks:kube-proxy-windows")}
_MODES = ("CONFIG_MAP", "API_AND_CONFIG_MAP", "API")
_RESERVED = ("system:", "eks:", "aws:", "amazon:", "iam:")
_ROLE = re.compile(r"arn:aws[\w-]*:iam::(\d{12}):role/(?:.*/)?([\w+=,.@-]{1,64})", re.ASCII)
Record = dict[str, Any]


class ClusterAccess:
    """The access configuration of one cluster.

    Refuses as EKS does: unknown principals, reserved names, duplicates, and objects that do not exist.
    """

    def __init__(self, cluster: str, account: str, region: str) -> None:
        self.mode = "API_AND_CONFIG_MAP"
        self.entries: dict[str, Record] = {}
        self.associations: dict[str, Record] = {}
        self.addons: dict[str, Record] = {}
        self._cluster, self._account, self._region = cluster, account, region

    def set_mode(self, mode: str) -> None:
        """Switch the authentication mode; like EKS, allow one direction only."""
        if mode not in _MODES:
            raise InvalidParameterException(message=f"Unsupported authentication mode {mode}")
        if _MODES.index(mode) <= _MODES.index(self.mode):
            raise InvalidParameterException(
                message=f"Unsupported authentication mode update from {self.mode} to {mode}"
            )
        self.mode = mode

    def create_entry(
        self, principal: str, kind: str, username: str, groups: Sequence[str], tags: Mapping[str, str]
    ) -> Record:
        """Create an access entry."""
        self._refuse_without_api()
        self._refuse_unknown_role(principal)
        if principal in self.entries:
            raise ResourceInUseException(
                message=f"The specified access entry resource is already in use on this cluster. {principal}"
            )
        if kind not in _TYPES:
            raise InvalidParameterException(message=f"The type {kind} is not valid")
        if kind != "STANDARD" and (username or groups):
            raise InvalidParameterException(
                message=f"The username and kubernetesGroups can't be set for the type {kind}"
            )
        entry = {
            "clusterName": self._cluster,
            "principalArn": principal,
            "accessEntryArn": self._arn("access-entry", f"role/{self._account}/{principal[-40:]}"),
            "type": kind,
            "username": _checked(username) or _own_name(principal, kind),
            "kubernetesGroups": list(groups) or list(_GROUPS.get(kind, ())),
            "tags": dict(tags),
            "createdAt": _now(),
            "modifiedAt": _now(),
        }
        self.entries[principal] = entry
        return entry

    def entry(self, principal: str) -> Record:
        """Return an access entry."""
        self._refuse_without_api()
        if principal not in self.entries:
            raise ResourceNotFoundException(
                message=f"The specified principalArn could not be found. You submitted {principal}"
            )
        return self.entries[principal]

    def update_entry(self, principal: str, username: str | None, groups: Sequence[str] | None) -> Record:
        """Change an access entry and return it."""
        entry = self.entry(principal)
        if entry["type"] != "STANDARD":
            raise InvalidRequestException(message="Only access entries of the type STANDARD can be updated")
        if username is not None:
            entry["username"] = _checked(username)
        if groups is not None:
            entry["kubernetesGroups"] = list(groups)
        entry["modifiedAt"] = _now()
        return entry

    def delete_entry(self, principal: str) -> None:
        """Delete an access entry."""
        self.entry(principal)
        del self.entries[principal]

    def create_association(self, namespace: str, account: str, role: str, tags: Mapping[str, str]) -> Record:
        """Create a Pod Identity association."""
        self._refuse_unknown_role(role)
        if any(
            (a["namespace"], a["serviceAccount"]) == (namespace, account) for a in self.associations.values()
        ):
            raise ResourceInUseException(
                message=f"Association already exists for the service account {namespace}/{account}"
            )
        id_ = f"a-{mock_random.get_random_hex(17)}"
        self.associations[id_] = {
            "clusterName": self._cluster,
            "namespace": namespace,
            "serviceAccount": account,
            "roleArn": role,
            "associationArn": self._arn("podidentityassociation", id_),
            "associationId": id_,
            "tags": dict(tags),
            "createdAt": _now(),
            "modifiedAt": _now(),
        }
        return self.associations[id_]

    def association(self, id_: str) -> Record:
        """Return a Pod Identity association."""
        if id_ not in self.associations:
            raise ResourceNotFoundException(message=f"No association found with id {id_}")
        return self.associations[id_]

    def update_association(self, id_: str, role: str) -> Record:
        """Change an association's role and return the association."""
        self._refuse_unknown_role(role)
        association = self.association(id_)
        association.update(roleArn=role, modifiedAt=_now())
        return association

    def delete_association(self, id_: str) -> Record:
        """Delete an association and return it."""
        self.association(id_)
        return self.associations.pop(id_)

    def create_addon(self, name: str, tags: Mapping[str, str]) -> Record:
        """Install an add-on and return it."""
        if name in self.addons:
            raise ResourceInUseException(message="Addon already exists.")
        addon = {
            "addonName": name,
            "clusterName": self._cluster,
            "status": "ACTIVE",
            "addonVersion": "v1.3.10-eksbuild.2",
            "addonArn": self._arn("addon", name),
            "tags": dict(tags),
            "createdAt": _now(),
            "modifiedAt": _now(),
        }
        self.addons[name] = addon
        return addon

    def addon(self, name: str) -> Record:
        """Return an add-on."""
        if name not in self.addons:
            raise ResourceNotFoundException(message=f"No addon: {name} found in cluster: {self._cluster}")
        return self.addons[name]

    def delete_addon(self, name: str) -> Record:
        """Remove an add-on and return it."""
        self.addon(name)
        return self.addons.pop(name)

    def _refuse_without_api(self) -> None:
        if self.mode == "CONFIG_MAP":
            raise InvalidRequestException(
                message="The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP] "
                "to perform this operation."
            )

    def _refuse_unknown_role(self, arn: str) -> None:
        match = _ROLE.fullmatch(arn)
        known_role = match and match[2] in {
            role.name for role in iam_backends[match[1]]["aws"].roles.values()
        }
        if not known_role:
            raise InvalidParameterException(
                message=f"The specified principalArn is invalid: invalid principal. You submitted {arn}"
            )

    def _arn(self, kind: str, name: str) -> str:
        return f"arn:aws:eks:{self._region}:{self._account}:{kind}/{self._cluster}/{name}"


def access_of(backend: Any, cluster: str) -> ClusterAccess:
    """Return a cluster's access configuration, stored in moto's EKS backend. A reset of moto's state discards it."""
    backend.describe_cluster(name=cluster)
    clusters_access: dict[str, ClusterAccess] = backend.__dict__.setdefault("nodesmith_access", {})
    if cluster not in clusters_access:
        clusters_access[cluster] = ClusterAccess(cluster, backend.account_id, backend.region_name)
    return clusters_access[cluster]


def _checked(username: str) -> str:
    """Return a username that EKS accepts.

    EKS refuses its reserved prefixes, and a session name without a colon before it.
    """
    if username.startswith(_RESERVED):
        raise InvalidParameterException(message=f"The username {username} begins with a reserved prefix")
    if "{{SessionName" in username and ":" not in username.partition("{{SessionName")[0]:
        raise InvalidParameterException(message="The username must have a colon before {{SessionName}}")
    return username


def _own_name(principal: str, kind: str) -> str:
    if kind == "STANDARD":
        return (
            f"{principal.replace(':iam:', ':sts:').replace(':role/', ':assumed-role/')}/{{{{SessionName}}}}"
        )
    return "system:node:{{EC2PrivateDNSName}}"


def _now() -> datetime:
    return datetime.now(UTC)
