"""Checks that the functions have the RBAC permissions of the manifests, by SubjectAccessReviews."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nodesmith_cli.connecting.applying import Applier
from nodesmith_cli.connecting.checks.findings import Finding, error
from nodesmith_formats.wording import some

_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_READ_SECONDS = 15.0
_ROLES = {"nodesmith-reader": "nodesmith:reader", "nodesmith-writer": "nodesmith:writer"}


def rights_findings(
    server: Applier, manifests: Sequence[Mapping[str, Any]], cluster: str
) -> Iterator[Finding]:
    """Yield a finding for each user with missing permissions, or nothing if the caller may not create reviews.

    Raises Transient.
    """
    for manifest in manifests:
        role = manifest["metadata"]["name"]
        if manifest["kind"] != "ClusterRole" or role not in _ROLES:
            continue
        user, missing = f"{_ROLES[role]}:{cluster}", []
        for right in _rights(manifest):
            allowed = _is_allowed(server, user, right)
            if allowed is None:
                return
            if not allowed:
                missing.append(_said(right))
        if missing:
            yield error(
                "rights",
                f"user {user}",
                f"lacks permission to {some(missing)}",
                f"nodesmith connect {cluster}",
            )


def _rights(role: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the last verb for each resource of a rule. An outdated role is most likely to lack that one."""
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                name, _, sub = resource.partition("/")
                named = (rule.get("resourceNames") or [""])[0]
                yield {
                    "group": group,
                    "resource": name,
                    "subresource": sub,
                    "verb": rule["verbs"][-1],
                    "name": named,
                }


def _is_allowed(server: Applier, user: str, right: Mapping[str, str]) -> bool | None:
    """Return whether the user has a permission, or None if the caller may not ask."""
    review = {"spec": {"user": user, "resourceAttributes": {k: v for k, v in right.items() if v}}}
    status, response = server.ask("POST", _REVIEWS, review, read_seconds=_READ_SECONDS)
    return bool((response.get("status") or {}).get("allowed")) if status < 300 else None


def _said(right: Mapping[str, str]) -> str:
    return f"{right['verb']} {'/'.join(filter(None, [right['resource'], right['subresource']]))}"
