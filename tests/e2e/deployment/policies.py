"""Wait until the API server enforces admission policies."""

from __future__ import annotations

from typing import Any

from nodesmith.adapters.kubernetes.apiserver import ApiServer
from nodesmith.errors import Rejected
from tests.patience import eventually

_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
_NAME = "denied-once-policies-are-enforced"


def wait_for_policies(admin: ApiServer) -> None:
    """Return once the API server enforces every policy and binding that was created before this call.

    The API server reads policies in creation order and enforces all those it has read at once. The probe is created
    last, so it is enforced last. Until then the API server may enforce only some of the policies.
    """
    rule: dict[str, Any] = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["configmaps"],
        "resourceNames": [_NAME],
    }
    policy = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "false"}]}
    binding = {"policyName": _NAME, "validationActions": ["Deny"]}
    for kind, spec in (("policies", policy), ("policybindings", binding)):
        admin.create(f"{_ADMISSION}/validatingadmission{kind}", {"metadata": {"name": _NAME}, "spec": spec})
    eventually(lambda: _is_denied(admin), "admission policies are enforced")
    for kind in ("policybindings", "policies"):
        admin.delete(f"{_ADMISSION}/validatingadmission{kind}/{_NAME}")


def _is_denied(admin: ApiServer) -> bool:
    try:
        admin.create(_CONFIGMAPS, {"metadata": {"name": _NAME}})
    except Rejected:
        return True
    admin.delete(f"{_CONFIGMAPS}/{_NAME}")
    return False
