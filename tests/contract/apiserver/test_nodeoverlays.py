"""NodeOverlays on an API server: it takes exactly what nodesmith does, and shows conditions and columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nodesmith.model.karpenter.nodeoverlays import parse_nodeoverlay
from tests.contract.servers import Call
from tests.objects.nodeoverlays import API_VERSION, CASES, PATH, UNKNOWN_CAPACITY_TYPE, spec_of

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def manifest(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": "NodeOverlay", "metadata": {"name": name}, "spec": spec}


def test_the_api_server_takes_what_nodesmith_takes(serving: Call, own: Callable[[str], str]) -> None:
    differing = {}
    for number, (what, change, valid) in enumerate(CASES):
        name = own(f"case-{number}")
        code, said = serving("POST", PATH, manifest(name, spec_of(change)))
        if (code == 201) != valid:
            differing[what] = code, said
        serving("DELETE", f"{PATH}/{name}")
    assert differing == {}


def test_the_api_server_takes_an_unknown_capacity_type_which_nodesmith_does_not(
    serving: Call, own: Callable[[str], str]
) -> None:
    odd = manifest(own("odd"), UNKNOWN_CAPACITY_TYPE)
    assert serving("POST", PATH, odd)[0] == 201
    assert parse_nodeoverlay(odd).value is None
    serving("DELETE", f"{PATH}/{odd['metadata']['name']}")


def test_kubectl_shows_whether_an_overlay_is_ready(serving: Call, own: Callable[[str], str]) -> None:
    name = own("shown")
    assert serving("POST", PATH, manifest(name, {"requirements": [], "weight": 7}))[0] == 201
    ready = {
        "type": "Ready",
        "status": "False",
        "reason": "UnhealthyDependents",
        "message": "",
        "lastTransitionTime": "2026-11-21T12:00:00Z",
    }
    code, _ = serving(
        "PATCH", f"{PATH}/{name}/status", {"status": {"conditions": [ready]}}, "application/merge-patch+json"
    )
    assert code == 200
    _, table = serving("GET", f"{PATH}/{name}", accept=TABLE)
    cells = dict(zip((c["name"] for c in table["columnDefinitions"]), table["rows"][0]["cells"], strict=True))
    assert (cells["Ready"], cells["Weight"]) == ("False", 7)
    serving("DELETE", f"{PATH}/{name}")
