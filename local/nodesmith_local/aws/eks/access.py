"""EKS features that moto lacks: access entries, Pod Identity associations, add-ons, authentication modes.

`eks_access` adds them to moto, in process or as a server, with EKS's own refusals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch
from urllib.parse import unquote

from moto.core.responses import ActionResult, EmptyResult
from moto.eks import urls
from moto.eks.responses import EKSResponse

from nodesmith_local.aws.eks.state import ClusterAccess, access_of

_CLUSTER = "{0}/clusters/(?P<name>[^/]+)"
_PATHS = ("access-entries", "pod-identity-associations", "addons")
Answer = Callable[[EKSResponse], ActionResult]


@contextmanager
def eks_access() -> Iterator[None]:
    """Let moto's EKS answer these calls as well."""
    with ExitStack() as stack:
        routes = {f"{_CLUSTER}/{path}$": urls.response.dispatch for path in _PATHS}
        routes |= {f"{_CLUSTER}/{path}/(?P<one>.+)$": urls.response.dispatch for path in _PATHS}
        stack.enter_context(patch.dict(urls.url_paths, routes))
        for name, answer in _ANSWERS.items():
            stack.enter_context(patch.object(EKSResponse, name, answer, create=True))
        stack.enter_context(patch.object(EKSResponse, "describe_cluster", _described))
        stack.enter_context(patch.object(EKSResponse, "update_cluster_config", _updated))
        yield


def _text_parameter(response: EKSResponse, name: str) -> str:
    return unquote(str(response._get_param(name) or ""))  # noqa: SLF001


def _parameter(response: EKSResponse, name: str) -> Any:
    return response._get_param(name)  # noqa: SLF001


def _access(response: EKSResponse) -> ClusterAccess:
    return access_of(
        response.eks_backend, _text_parameter(response, "name") or _text_parameter(response, "clusterName")
    )


def _create_access_entry(response: EKSResponse) -> ActionResult:
    entry = _access(response).create_entry(
        _text_parameter(response, "principalArn"),
        _parameter(response, "type") or "STANDARD",
        _parameter(response, "username") or "",
        _parameter(response, "kubernetesGroups") or [],
        _parameter(response, "tags") or {},
    )
    return ActionResult({"accessEntry": entry})


def _describe_access_entry(response: EKSResponse) -> ActionResult:
    return ActionResult({"accessEntry": _access(response).entry(_text_parameter(response, "principalArn"))})


def _update_access_entry(response: EKSResponse) -> ActionResult:
    entry = _access(response).update_entry(
        _text_parameter(response, "principalArn"),
        _parameter(response, "username"),
        _parameter(response, "kubernetesGroups"),
    )
    return ActionResult({"accessEntry": entry})


def _delete_access_entry(response: EKSResponse) -> ActionResult:
    _access(response).delete_entry(_text_parameter(response, "principalArn"))
    return EmptyResult()


def _list_access_entries(response: EKSResponse) -> ActionResult:
    return ActionResult({"accessEntries": sorted(_access(response).entries)})


def _create_association(response: EKSResponse) -> ActionResult:
    association = _access(response).create_association(
        _parameter(response, "namespace"),
        _parameter(response, "serviceAccount"),
        _parameter(response, "roleArn"),
        _parameter(response, "tags") or {},
    )
    return ActionResult({"association": association})


def _describe_association(response: EKSResponse) -> ActionResult:
    return ActionResult(
        {"association": _access(response).association(_text_parameter(response, "associationId"))}
    )


def _update_association(response: EKSResponse) -> ActionResult:
    association = _access(response).update_association(
        _text_parameter(response, "associationId"), _parameter(response, "roleArn")
    )
    return ActionResult({"association": association})


def _delete_association(response: EKSResponse) -> ActionResult:
    return ActionResult(
        {"association": _access(response).delete_association(_text_parameter(response, "associationId"))}
    )


def _list_associations(response: EKSResponse) -> ActionResult:
    namespace, account = _text_parameter(response, "namespace"), _text_parameter(response, "serviceAccount")
    associations = [
        association
        for association in _access(response).associations.values()
        if namespace in ("", association["namespace"]) and account in ("", association["serviceAccount"])
    ]
    return ActionResult({"associations": associations})


def _create_addon(response: EKSResponse) -> ActionResult:
    addon = _access(response).create_addon(
        _parameter(response, "addonName"), _parameter(response, "tags") or {}
    )
    return ActionResult({"addon": addon})


def _describe_addon(response: EKSResponse) -> ActionResult:
    return ActionResult({"addon": _access(response).addon(_text_parameter(response, "addonName"))})


def _delete_addon(response: EKSResponse) -> ActionResult:
    return ActionResult({"addon": _access(response).delete_addon(_text_parameter(response, "addonName"))})


def _list_addons(response: EKSResponse) -> ActionResult:
    return ActionResult({"addons": sorted(_access(response).addons)})


def _described(response: EKSResponse) -> ActionResult:
    name = _text_parameter(response, "name")
    cluster = response.eks_backend.describe_cluster(name=name)
    mode = access_of(response.eks_backend, name).mode
    cluster.access_config = {"authenticationMode": mode}  # type: ignore[attr-defined]
    return ActionResult({"cluster": cluster})


_moto_updated = EKSResponse.update_cluster_config


def _updated(response: EKSResponse) -> ActionResult:
    mode = (_parameter(response, "accessConfig") or {}).get("authenticationMode")
    if not mode:
        return _moto_updated(response)
    _access(response).set_mode(mode)
    update = {
        "id": "00000000-0000-0000-0000-000000000000",
        "status": "InProgress",
        "type": "AccessConfigUpdate",
    }
    return ActionResult({"update": update})


_ANSWERS: dict[str, Answer] = {
    "create_access_entry": _create_access_entry,
    "describe_access_entry": _describe_access_entry,
    "update_access_entry": _update_access_entry,
    "delete_access_entry": _delete_access_entry,
    "list_access_entries": _list_access_entries,
    "create_pod_identity_association": _create_association,
    "describe_pod_identity_association": _describe_association,
    "update_pod_identity_association": _update_association,
    "delete_pod_identity_association": _delete_association,
    "list_pod_identity_associations": _list_associations,
    "create_addon": _create_addon,
    "describe_addon": _describe_addon,
    "delete_addon": _delete_addon,
    "list_addons": _list_addons,
}
