"""Manifests of every API version on a real API server: old kinds are accepted, and v1beta1 and v1 share one object."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from nodesmith.model.karpenter.conversion.converting import convert
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.nodeclasses.nodeclasses import parse_nodeclass
from nodesmith_cli.main import app
from nodesmith_formats.shipped import shipped
from nodesmith_local.controlplane import ControlPlane, find_binaries
from tests.contract.servers import real, until_served
from tests.e2e.conftest import BUILD
from tests.objects.manifests import examples_for_kubernetes
from tests.unit.model.karpenter.conversionfields import KUBELET, TABLES

EXAMPLES = shipped("_examples", "examples")
CRDS = sorted((Path(__file__).resolve().parents[3] / "forwarder/crds").glob("karpenter*.yaml"))
Manifest = dict[str, Any]
POOL: Manifest = {
    "apiVersion": "karpenter.sh/v1beta1",
    "kind": "NodePool",
    "metadata": {"name": "old"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {
                    "apiVersion": "karpenter.k8s.aws/v1beta1",
                    "kind": "EC2NodeClass",
                    "name": "old",
                },
                "requirements": [
                    {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"], "minValues": 1}
                ],
                "kubelet": KUBELET,
            }
        },
        "disruption": {
            "consolidationPolicy": "WhenUnderutilized",
            "expireAfter": "24h",
            "budgets": [{"nodes": "20%", "schedule": "0 9 * * mon-fri", "duration": "8h"}],
        },
        "limits": {"cpu": "100"},
    },
}
CLASS: Manifest = {
    "apiVersion": "karpenter.k8s.aws/v1beta1",
    "kind": "EC2NodeClass",
    "metadata": {"name": "old"},
    "spec": {
        "amiFamily": "AL2023",
        "role": "nodes",
        "subnetSelectorTerms": [{"tags": {"team": "blue"}}],
        "securityGroupSelectorTerms": [{"tags": {"team": "blue"}}],
    },
}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane(find_binaries(), BUILD / "test_crd_ages") as running:
        succeed(running.kubectl("apply", *(word for path in CRDS for word in ("-f", str(path)))))
        until_served(running)
        yield running


def succeed(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def apply(plane: ControlPlane, *objects: Mapping[str, Any], **options: str) -> str:
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    return succeed(plane.kubectl("apply", *flags, "-f", "-", stdin=yaml.safe_dump_all(objects)))


def got(plane: ControlPlane, resource: str, name: str = "old") -> Manifest:
    found: Manifest = json.loads(succeed(plane.kubectl("get", resource, name, "-o", "json")))
    return found


def read(*manifests: Mapping[str, Any]) -> list[Any]:
    """Return what nodesmith reads from objects, without the fields that only a server sets."""
    found = []
    for each in convert(manifests).objects:
        parse = parse_nodepool if each.manifest["kind"] == "NodePool" else parse_nodeclass
        bare = {**each.manifest, "metadata": {"name": each.manifest["metadata"]["name"]}}
        assert parse(bare).fatal == ()
        found.append(parse(bare).value)
    return found


def spec_of(kind: str) -> Manifest:
    """Return a spec with every field of an old kind, except those that exclude each other."""
    spec: Manifest = {}
    (rows,) = (
        rows
        for (_, each), rows in TABLES.items()
        if each == kind and kind in {"Provisioner", "AWSNodeTemplate"}
    )
    for row in rows:
        *path, last = row.field.split(".")[1:]
        place = spec
        for step in path:
            place = place.setdefault(step, {})
        place[last] = deepcopy(row.value)
    return spec


@pytest.mark.parametrize(
    ("kind", "api_version", "resource"),
    [
        ("Provisioner", "karpenter.sh/v1alpha5", "provisioners"),
        ("AWSNodeTemplate", "karpenter.k8s.aws/v1alpha1", "awsnodetemplates"),
    ],
)
def test_an_old_kind_is_accepted_and_stored_with_every_field(
    plane: ControlPlane, kind: str, api_version: str, resource: str
) -> None:
    old = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "old"}, "spec": spec_of(kind)}

    assert "created" in apply(plane, old)
    assert got(plane, resource)["spec"] == old["spec"]
    assert "unchanged" in apply(plane, old)


def test_a_v1beta1_object_loses_nothing_when_it_is_edited_as_v1_and_reapplied(plane: ControlPlane) -> None:
    apply(plane, POOL, CLASS)
    as_v1 = [got(plane, "nodepools.v1.karpenter.sh"), got(plane, "ec2nodeclasses.v1.karpenter.k8s.aws")]
    assert [each["apiVersion"] for each in as_v1] == ["karpenter.sh/v1", "karpenter.k8s.aws/v1"]
    assert read(*as_v1) == read(POOL, CLASS), "the cluster stores what the file says"

    as_v1[0]["spec"]["weight"] = 7
    # Everything is written back.
    for each, plural in zip(as_v1, ("nodepools", "ec2nodeclasses"), strict=True):
        each["metadata"]["labels"] = {"edited": "yes"}
        path = f"/apis/{each['apiVersion']}/{plural}/old"
        code, answer = real(plane).call("PUT", path, each, fieldValidation="Strict")
        assert code == 200, answer
    edited = [got(plane, "nodepools.v1.karpenter.sh"), got(plane, "ec2nodeclasses.v1.karpenter.k8s.aws")]
    assert [each["spec"] for each in edited] == [each["spec"] for each in as_v1]

    assert apply(plane, POOL, CLASS).count("unchanged") == 2
    again = [got(plane, "nodepools.v1.karpenter.sh"), got(plane, "ec2nodeclasses.v1.karpenter.k8s.aws")]
    assert [each["spec"] for each in again] == [each["spec"] for each in as_v1]
    assert [each["metadata"]["labels"] for each in again] == [{"edited": "yes"}] * 2
    for each, given in zip(
        [
            got(plane, "nodepools.v1beta1.karpenter.sh"),
            got(plane, "ec2nodeclasses.v1beta1.karpenter.k8s.aws"),
        ],
        (POOL, CLASS),
        strict=True,
    ):
        assert holds(each["spec"], given["spec"]), "as v1beta1 it holds what was written, plus defaults"


def holds(whole: Any, part: Any) -> bool:
    """Return whether `whole` contains everything in `part`."""
    if isinstance(part, Mapping):
        return all(name in whole and holds(whole[name], inner) for name, inner in part.items())
    return bool(whole == part)


def test_edits_made_as_v1_take_effect(plane: ControlPlane) -> None:
    apply(plane, POOL, CLASS)
    patch = {
        "spec": {
            "template": {"spec": {"expireAfter": "48h"}},
            "disruption": {"consolidationPolicy": "WhenEmpty"},
        }
    }
    succeed(
        plane.kubectl("patch", "nodepools.v1.karpenter.sh", "old", "--type=merge", "-p", json.dumps(patch))
    )

    (pool,) = read(got(plane, "nodepools.v1.karpenter.sh"))
    assert (pool.expire_after, pool.disruption.consolidation_policy) == ("48h", "WhenEmpty")


def test_fields_that_v1beta1_omits_get_the_defaults_of_v1beta1(plane: ControlPlane) -> None:
    pool = deepcopy(POOL)
    pool["metadata"]["name"] = "least"
    pool["spec"] = {"template": {"spec": {"nodeClassRef": {"name": "old"}, "requirements": []}}}
    apply(plane, pool, CLASS)
    v1 = [got(plane, "nodepools.v1.karpenter.sh", "least"), got(plane, "ec2nodeclasses.v1.karpenter.k8s.aws")]

    assert v1[0]["spec"]["template"]["spec"]["nodeClassRef"] == {
        "group": "karpenter.k8s.aws",
        "kind": "EC2NodeClass",
        "name": "old",
    }
    assert read(*v1) == read(pool, CLASS)
    assert v1[1]["spec"]["metadataOptions"]["httpPutResponseHopLimit"] == 2


def test_the_status_of_an_object_created_as_v1beta1_can_be_written_as_v1(plane: ControlPlane) -> None:
    apply(plane, POOL, CLASS)
    for resource in ("nodepools.v1.karpenter.sh", "ec2nodeclasses.v1.karpenter.k8s.aws"):
        before = got(plane, resource)
        ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": ""}
        status = {"status": {"conditions": [{**ready, "lastTransitionTime": "2026-11-21T12:00:00Z"}]}}
        done = plane.kubectl(
            "patch", resource, "old", "--subresource=status", "--type=merge", "-p", json.dumps(status)
        )
        succeed(done)
        assert got(plane, resource)["spec"] == before["spec"]


def test_managers_of_both_versions_share_one_object(plane: ControlPlane) -> None:
    mine = {**deepcopy(POOL), "metadata": {"name": "shared"}}
    apply(plane, mine, server_side="true", field_manager="old")
    theirs = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "shared"},
        "spec": {
            "weight": 3,
            "template": {
                "spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "old"},
                    "requirements": POOL["spec"]["template"]["spec"]["requirements"],
                }
            },
        },
    }
    apply(plane, theirs, server_side="true", field_manager="new")
    apply(plane, mine, server_side="true", field_manager="old")

    found = got(plane, "nodepools.v1.karpenter.sh", "shared")["spec"]
    assert found["weight"] == 3
    assert found["disruption"]["expireAfter"] == "24h"
    assert found["template"]["spec"]["kubelet"] == KUBELET


@pytest.mark.parametrize(
    "file",
    examples_for_kubernetes(EXAMPLES),
    ids=lambda f: str(f.relative_to(EXAMPLES)),
)
def test_every_example_and_its_conversion_are_accepted(plane: ControlPlane, file: Path) -> None:
    """Except for the mistakes, which show what is refused."""
    converted = CliRunner().invoke(app, ["convert", "-f", str(file)]).stdout
    for text in (file.read_text(), converted):
        done = plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)
        assert done.returncode == 0, done.stderr


def test_only_v1_objects_must_meet_the_requirements_of_v1(plane: ControlPlane) -> None:
    lacking = {**deepcopy(POOL), "apiVersion": "karpenter.sh/v1", "metadata": {"name": "lacking"}}
    done = plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(lacking))
    assert done.returncode == 1
    assert "spec.template.spec.nodeClassRef.group: Required value" in done.stderr
