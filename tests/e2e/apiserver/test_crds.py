"""The CRDs on a real API server: apply, explain, get, scale, defaults, and refusals with nodesmith's messages."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodesmith.model.karpenter.nodeclaimobjects import manifest as nodeclaim_manifest
from nodesmith.model.karpenter.nodeclaimobjects import parse_nodeclaim
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.nodeclasses.nodeclasses import parse_nodeclass
from nodesmith.model.schema.fields import Field, Kind, Object
from nodesmith.model.schema.nodeclaims import NODE_CLAIM
from nodesmith.model.schema.nodeclasses import EC2_NODE_CLASS
from nodesmith.model.schema.nodepools import NODE_POOL
from nodesmith_formats.crds import custom_resource_definitions
from nodesmith_local.apiserver import ApiServer
from nodesmith_local.controlplane import ControlPlane, find_binaries
from tests import builders
from tests.contract.servers import Server, in_memory, real, until_served
from tests.e2e.apiserver.crdmanifests import KINDS, Broken, Manifest, changed, full, misfits, rule_breakers
from tests.e2e.conftest import BUILD
from tests.objects.manifests import examples_for_kubernetes, nodeclass, nodepool

ROOT = Path(__file__).resolve().parents[3]
CRDS = ROOT / "forwarder" / "crds"
CRD_FILES = sorted(CRDS.glob("karpenter*.yaml"))
PATHS = {kind.name: f"/apis/{kind.api_version}/{kind.plural}" for kind in KINDS}
EACH_KIND = pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
MERGE = "application/merge-patch+json"
Refusal = tuple[int, frozenset[tuple[str, str, str]]]


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """Run one real control plane for this module; the CRDs are not applied yet."""
    with ControlPlane(find_binaries(), BUILD / "test_crds") as running:
        yield running


@pytest.fixture(scope="module")
def applied(plane: ControlPlane) -> ControlPlane:
    """Return the control plane that serves nodesmith's kinds."""
    succeed(plane.kubectl("apply", *files(CRD_FILES)))
    until_served(plane)
    return plane


@pytest.fixture(scope="module")
def servers(applied: ControlPlane) -> Iterator[tuple[Server, Server]]:
    """Yield access to the real API server and to the in-memory one, with the same CRDs."""
    with ApiServer(now=lambda: datetime.now(UTC)) as memory:
        ours = in_memory(memory)
        for crd in custom_resource_definitions():
            code, _ = ours.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
            assert code == 201
        yield real(applied), ours


@pytest.fixture
def clean(applied: ControlPlane) -> Iterator[ControlPlane]:
    """Yield the control plane, and remove the objects of nodesmith's kinds that a test leaves."""
    yield applied
    for path in PATHS.values():
        assert real(applied).call("DELETE", path)[0] == 200


def files(paths: Iterable[Path]) -> list[str]:
    return [word for path in paths for word in ("-f", str(path))]


def succeed(done: subprocess.CompletedProcess[str]) -> str:
    """Return a command's output. The command must have succeeded."""
    assert done.returncode == 0, done.stderr
    return done.stdout


def apply(plane: ControlPlane, *objects: Manifest, **options: str) -> subprocess.CompletedProcess[str]:
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    return plane.kubectl("apply", *flags, "-f", "-", stdin=yaml.safe_dump_all(objects))


def got(plane: ControlPlane, resource: str, name: str) -> Manifest:
    found: Manifest = json.loads(succeed(plane.kubectl("get", resource, name, "-o", "json")))
    return found


def test_the_crds_can_be_applied_client_side_and_server_side(plane: ControlPlane) -> None:
    first = succeed(plane.kubectl("apply", *files(CRD_FILES)))
    again = succeed(plane.kubectl("apply", *files(CRD_FILES)))
    until_served(plane)
    crds = json.loads(succeed(plane.kubectl("get", "crd", "-o", "json")))["items"]

    assert first.count("created") == len(CRD_FILES) == len(crds) == 6
    assert again.count("unchanged") == len(CRD_FILES)
    said = {c["type"]: c["status"] for crd in crds for c in crd["status"]["conditions"]}
    assert said == {"NamesAccepted": "True", "Established": "True"}, (
        "a NonStructuralSchema condition would appear here"
    )

    taken = succeed(plane.kubectl("apply", "--server-side", "--force-conflicts", *files(CRD_FILES)))
    twice = succeed(plane.kubectl("apply", "--server-side", *files(CRD_FILES)))
    assert taken.count("serverside-applied") == twice.count("serverside-applied") == len(CRD_FILES)


def test_server_side_apply_reports_conflicts_between_managers(clean: ControlPlane) -> None:
    succeed(apply(clean, nodepool(weight=10), server_side="true", field_manager="alice"))
    succeed(apply(clean, nodepool(weight=10), server_side="true", field_manager="alice"))

    refused = apply(clean, nodepool(weight=20), server_side="true", field_manager="bob")
    assert refused.returncode == 1
    assert 'conflict with "alice": .spec.weight' in refused.stderr
    assert got(clean, "nodepool", "default")["spec"]["weight"] == 10

    forced = apply(
        clean, nodepool(weight=20), server_side="true", field_manager="bob", force_conflicts="true"
    )
    assert forced.returncode == 0, forced.stderr
    owners = json.loads(
        succeed(clean.kubectl("get", "nodepool", "default", "-o", "json", "--show-managed-fields"))
    )["metadata"]["managedFields"]
    assert {o["manager"]: "f:weight" in o["fieldsV1"]["f:spec"] for o in owners} == {
        "alice": False,
        "bob": True,
    }


@EACH_KIND
def test_explain_prints_our_descriptions(applied: ControlPlane, kind: Kind) -> None:
    for path in ("spec", "spec.template.spec.requirements", "spec.requirements", "spec.kubelet"):
        field = described(kind, path)
        if field is None:
            continue
        reported = " ".join(succeed(applied.kubectl("explain", f"{kind.name.lower()}.{path}")).split())
        assert field.doc in reported
        assert all(inner.doc in reported for inner in fields_of(field).values())


def described(kind: Kind, path: str) -> Field | None:
    found: Field | None = Object({"spec": kind.spec})
    for step in path.split("."):
        found = fields_of(found).get(step) if found else None
    return found


def fields_of(field: Field) -> Mapping[str, Field]:
    inner = getattr(field, "of", field)
    return inner.fields if isinstance(inner, Object) else {}


def parsed(manifest: Manifest) -> Any:
    """Read an object as nodesmith does."""
    match manifest["kind"]:
        case "NodePool":
            return parse_nodepool(manifest).value
        case "NodeClaim":
            return parse_nodeclaim(manifest, builders.NOW).value
        case _:
            return parse_nodeclass(manifest).value


def least(kind: Kind) -> Manifest:
    """Return an object with only the required fields."""
    spec = {
        name: full(kind)["spec"][name]
        for name in (*kind.spec.required, *(["role"] if kind is EC2_NODE_CLASS else []))
    }
    return full(kind) | {"spec": spec}


@EACH_KIND
def test_the_api_servers_defaults_are_the_defaults_of_the_parser(applied: ControlPlane, kind: Kind) -> None:
    given = [least(kind), full(kind)]
    if kind is NODE_POOL:
        given += [changed(kind, ("disruption", {})), changed(kind, ("disruption.budgets", [{}]))]
    for manifest in given:
        code, stored = real(applied).call("POST", PATHS[kind.name], manifest, dryRun="All")

        assert code == 201
        assert parsed(manifest) is not None
        bare = stored | {"metadata": manifest["metadata"]}
        assert parsed(bare) == parsed(manifest), "including the hash that drift detection compares"


def test_the_defaults_are_karpenters(clean: ControlPlane) -> None:
    succeed(apply(clean, least(NODE_POOL), least(EC2_NODE_CLASS)))

    pool, spec = got(clean, "nodepool", "full")["spec"], got(clean, "ec2nodeclass", "full")["spec"]

    assert pool["disruption"] == {
        "budgets": [{"nodes": "10%"}],
        "consolidateAfter": "0s",
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
    }
    assert pool["template"]["spec"]["expireAfter"] == "720h"
    assert "weight" not in pool
    assert spec["metadataOptions"] == {
        "httpEndpoint": "enabled",
        "httpProtocolIPv6": "disabled",
        "httpPutResponseHopLimit": 1,
        "httpTokens": "required",
    }


READY = {
    "type": "Ready",
    "status": "True",
    "reason": "Ready",
    "message": "",
    "lastTransitionTime": "2026-11-21T12:00:00Z",
}


def test_kubectl_get_shows_karpenters_columns(clean: ControlPlane) -> None:
    claim = replace(
        builders.claim("default-x1", instance_type="c7a.large", zone="us-east-1a", capacity_type="spot"),
        node_name="ip-10-0-0-1",
        image_id="ami-1",
        launched_at=builders.NOW,
    )
    written = nodeclaim_manifest(claim)
    written["metadata"].pop("finalizers")  # no controller runs that would remove it
    succeed(apply(clean, nodepool(weight=7), nodeclass("shop"), written))
    show(clean, "nodepool", "default", {"nodes": 1, "resources": {"cpu": "2"}, "conditions": [READY]})
    show(clean, "ec2nodeclass", "default", {"conditions": [READY]})
    show(clean, "nodeclaim", "default-x1", nodeclaim_manifest(claim)["status"])

    names = ("nodepools", "nodeclaims", "ec2nodeclasses")
    tables = {
        name: [line.split() for line in succeed(clean.kubectl("get", name)).splitlines()] for name in names
    }
    wide = succeed(clean.kubectl("get", ",".join(names), "-o", "wide"))

    assert tables["nodepools"][0] == ["NAME", "NODECLASS", "NODES", "READY", "AGE"]
    assert tables["nodepools"][1][:4] == ["default", "default", "1", "True"]
    assert tables["nodeclaims"][0] == ["NAME", "TYPE", "CAPACITY", "ZONE", "NODE", "READY", "AGE"]
    assert tables["nodeclaims"][1][:6] == [
        "default-x1",
        "c7a.large",
        "spot",
        "us-east-1a",
        "ip-10-0-0-1",
        "Unknown",
    ]
    assert tables["ec2nodeclasses"] == [
        ["NAME", "READY", "AGE"],
        ["default", "True", tables["ec2nodeclasses"][1][2]],
    ]
    for header in ("WEIGHT CPU MEMORY", "IMAGEID ID NODEPOOL NODECLASS DRIFTED", "READY AGE ROLE"):
        assert header in " ".join(wide.split())


def show(plane: ControlPlane, resource: str, name: str, status: Any) -> None:
    patch = json.dumps({"status": status})
    succeed(plane.kubectl("patch", resource, name, "--subresource=status", "--type=merge", "-p", patch))


def test_kinds_are_found_by_category_and_short_name(clean: ControlPlane) -> None:
    succeed(apply(clean, nodepool(), nodeclass("shop")))

    everything = succeed(clean.kubectl("get", "karpenter", "-o", "name")).split()

    assert sorted(everything) == ["ec2nodeclass.karpenter.k8s.aws/default", "nodepool.karpenter.sh/default"]
    for short in ("ec2nc", "ec2ncs"):
        assert succeed(clean.kubectl("get", short, "-o", "name")).split() == everything[:1]


def test_the_status_subresource_changes_only_the_status_and_the_object_only_the_spec(
    clean: ControlPlane,
) -> None:
    succeed(apply(clean, nodepool(weight=7) | {"status": {"nodes": 9}}))
    before = got(clean, "nodepool", "default")

    both = json.dumps({"spec": {"weight": 8}, "status": {"nodes": 3}})
    succeed(clean.kubectl("patch", "nodepool", "default", "--subresource=status", "--type=merge", "-p", both))
    after = got(clean, "nodepool", "default")

    assert before.get("status", {}).get("nodes", 0) == 0
    assert (after["spec"]["weight"], after["status"]["nodes"]) == (7, 3)
    assert after["metadata"]["generation"] == before["metadata"]["generation"] == 1


def test_a_pool_of_fixed_size_is_scaled(clean: ControlPlane) -> None:
    static = changed(NODE_POOL, ("replicas", 1), ("weight", None), ("limits", {"nodes": 10}))
    succeed(apply(clean, static))
    show(clean, "nodepool", "full", {"nodes": 1})

    succeed(clean.kubectl("scale", "nodepool", "full", "--current-replicas=1", "--replicas=4"))

    assert got(clean, "nodepool", "full")["spec"]["replicas"] == 4
    refused = clean.kubectl("scale", "nodepool", "full", "--replicas=-1")
    assert refused.returncode == 1


def test_unknown_fields_are_refused_by_name_or_dropped_with_a_warning(clean: ControlPlane) -> None:
    odd = nodepool()
    odd["spec"]["limit"] = {"cpu": "1"}
    odd["spec"]["template"]["spec"]["requirement"] = []

    strict = apply(clean, odd)
    lax = apply(clean, odd, validate="warn")

    assert strict.returncode == 1
    for field in ('unknown field "spec.limit"', 'unknown field "spec.template.spec.requirement"'):
        assert field in strict.stderr
        assert field in lax.stderr
    assert lax.returncode == 0
    assert "limit" not in got(clean, "nodepool", "default")["spec"]


def test_unknown_kubelet_settings_are_kept(clean: ControlPlane) -> None:
    succeed(apply(clean, changed(EC2_NODE_CLASS, ("kubelet.serializeImagePulls", False))))

    assert got(clean, "ec2nodeclass", "full")["spec"]["kubelet"]["serializeImagePulls"] is False


def test_kubectl_refuses_a_bad_manifest_with_nodesmiths_message(clean: ControlPlane) -> None:
    done = apply(clean, changed(NODE_POOL, ("template.metadata.labels", {"karpenter.sh/custom": "yes"})))

    assert done.returncode == 1
    assert (
        'NodePool "full" is invalid: spec.template.metadata.labels: Invalid value: '
        "this key is reserved: use a well-known one, or a domain of your own"
    ) in done.stderr


@EACH_KIND
def test_both_servers_accept_the_full_and_the_minimal_object(
    servers: tuple[Server, Server], kind: Kind
) -> None:
    for server in servers:
        for manifest in (full(kind), least(kind)):
            code, answer = server.call(
                "POST", PATHS[kind.name], manifest, dryRun="All", fieldValidation="Strict"
            )
            assert code == 201, answer


@EACH_KIND
def test_both_servers_refuse_schema_violations_alike(servers: tuple[Server, Server], kind: Kind) -> None:
    bad = list(misfits(kind))

    wrong = disagreements(servers, kind, bad)

    assert not wrong
    assert len(bad) >= 60


@EACH_KIND
def test_every_rule_refuses_violations_with_its_message_in_both_servers(
    servers: tuple[Server, Server], kind: Kind
) -> None:
    bad = list(rule_breakers(kind))

    wrong = disagreements(servers, kind, bad)

    assert not wrong
    untried = {message for message in rules_of(kind) if not any(message.startswith(b.words) for b in bad)}
    assert not untried


def disagreements(servers: tuple[Server, Server], kind: Kind, bad: Iterable[Broken]) -> list[str]:
    """Return where the servers' answers differ, or name another field or message than expected."""
    wrong = []
    for each in bad:
        theirs, ours = (refusal(server, kind, each.manifest) for server in servers)
        said = {message for field, message, _ in theirs[1] if field.startswith(each.field)}
        if theirs[0] != 422 or not any(each.words in message for message in said):
            wrong.append(f"{each.field}: {each.words!r} expected, the real server says {sorted(theirs[1])}")
        elif theirs != ours:
            wrong.append(f"{each.field}: real {sorted(theirs[1])}, in memory {ours[0]} {sorted(ours[1])}")
    return wrong


def refusal(server: Server, kind: Kind, manifest: Manifest) -> Refusal:
    code, answer = server.call("POST", PATHS[kind.name], manifest, dryRun="All")
    causes = (answer.get("details") or {}).get("causes") or ()
    return code, frozenset((c.get("field", ""), c["message"], c["reason"]) for c in causes)


def rules_of(kind: Kind) -> set[str]:
    """Return the messages of all rules about a new spec, from the CRD itself."""
    crd = next(c for c in custom_resource_definitions() if c["spec"]["names"]["kind"] == kind.name)
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return {rule["message"] for rule in _rules(schema) if "oldSelf" not in rule["rule"]}


def _rules(schema: Any) -> Iterator[Mapping[str, str]]:
    yield from schema.get("x-kubernetes-validations") or ()
    inner = [
        *(schema.get("properties") or {}).values(),
        schema.get("items"),
        schema.get("additionalProperties"),
    ]
    for each in inner:
        if isinstance(each, Mapping):
            yield from _rules(each)


@pytest.mark.parametrize(
    ("first", "patch", "field", "message"),
    [
        (
            full(NODE_POOL),
            {"replicas": 3, "weight": None, "limits": None},
            "spec",
            "replicas cannot be added or removed once the NodePool exists",
        ),
        (
            full(NODE_POOL),
            {"template": {"spec": {"nodeClassRef": {"group": "karpenter.azure.com"}}}},
            "spec.template.spec.nodeClassRef",
            "group cannot be changed on a NodePool",
        ),
        (
            full(NODE_POOL),
            {"template": {"spec": {"nodeClassRef": {"kind": "AKSNodeClass"}}}},
            "spec.template.spec.nodeClassRef",
            "kind cannot be changed on a NodePool",
        ),
        (full(NODE_CLAIM), {"expireAfter": "1h"}, "spec", "a NodeClaim cannot be changed; create a new one"),
    ],
    ids=["replicas", "group", "kind", "claim"],
)
def test_both_servers_refuse_forbidden_changes_alike(
    servers: tuple[Server, Server], first: Manifest, patch: Any, field: str, message: str
) -> None:
    path = PATHS[first["kind"]]
    for server in servers:
        assert server.call("POST", path, first)[0] == 201
        code, answer = server.call("PATCH", f"{path}/full", {"spec": patch}, MERGE)
        labelled, _ = server.call("PATCH", f"{path}/full", {"metadata": {"labels": {"a": "b"}}}, MERGE)
        server.call("DELETE", f"{path}/full")

        assert (code, labelled) == (422, 200)
        assert answer["details"]["causes"] == [
            {"reason": "FieldValueInvalid", "message": f"Invalid value: {message}", "field": field}
        ]


GOOD_EXAMPLES = examples_for_kubernetes(ROOT / "examples")


def test_every_example_is_accepted(applied: ControlPlane) -> None:
    done = applied.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", *files(GOOD_EXAMPLES)
    )

    assert len(GOOD_EXAMPLES) >= 5
    assert done.returncode == 0, done.stderr


def test_the_api_server_refuses_the_mistakes_in_the_example_that_its_rules_cover(
    applied: ControlPlane,
) -> None:
    text = (ROOT / "examples" / "mistakes.yaml").read_text()
    readable, _ = text.rsplit("\n---\n", 1)  # the last document is not YAML

    done = applied.kubectl("apply", "--dry-run=server", "-f", "-", stdin=readable)

    accepted = [line.split()[0] for line in done.stdout.splitlines()]
    assert accepted == [
        "ec2nodeclass.karpenter.k8s.aws/nowhere",
        "nodepool.karpenter.sh/nowhere",
        "pod/too-big",
        "ec2nodeclass.karpenter.k8s.aws/default",
        "nodepool.karpenter.sh/healthy",
        "pod/served",
    ]
    for name, words in (
        ("unknown-operator", 'operator: Unsupported value: "Inn"'),
        ("restricted-label", "this key is reserved"),
        ("no-quantity", 'spec.limits.memory: Invalid value: "1gb"'),
    ):
        assert any(name in line and words in line for line in done.stderr.splitlines())


@pytest.mark.parametrize(
    "manifest",
    [
        nodepool(),
        nodepool(weight=100, limits={"cpu": "1k", "memory": "1000Gi", "nodes": "10"}, labels={"team": "a"}),
        nodepool(requirements=[], taints=[{"key": "a", "value": "b", "effect": "NoExecute"}]),
        nodepool(startup_taints=[{"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"}]),
        nodeclass("shop"),
        nodeclass("shop", amiFamily="Custom", userData="#!/bin/bash", amiSelectorTerms=[{"id": "ami-1"}]),
        nodeclaim_manifest(builders.claim("default-x1")),
        nodeclaim_manifest(builders.claim("default-x2").given_up("NoCapacity", "none left", builders.NOW)),
    ],
    ids=lambda manifest: f"{manifest['kind']}/{manifest['metadata']['name']}",
)
def test_both_servers_accept_what_nodesmith_and_the_tests_write(
    servers: tuple[Server, Server], manifest: Manifest
) -> None:
    for server in servers:
        code, answer = server.call(
            "POST", PATHS[manifest["kind"]], manifest, dryRun="All", fieldValidation="Strict"
        )
        assert code == 201, answer
