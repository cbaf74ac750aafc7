from pathlib import Path
from typing import Any

import pytest
import yaml

from nodesmith.model.schema.fields import Integer, Map, Object, Quantity, Rule, Text
from nodesmith_cli.manifests.crds import files
from nodesmith_formats.crds import custom_resource_definitions, schema

DIRECTORY = Path(__file__).parents[4] / "forwarder/crds"
CRDS = {crd["spec"]["names"]["kind"]: crd for crd in custom_resource_definitions()}


def version(kind: str) -> dict[str, Any]:
    """Return the version that is stored."""
    (found,) = (each for each in CRDS[kind]["spec"]["versions"] if each["storage"])
    return dict(found)


def at(kind: str, *path: str) -> dict[str, Any]:
    """Return the schema of a field of the spec. `[]` steps into the items of a list."""
    place = version(kind)["schema"]["openAPIV3Schema"]["properties"]["spec"]
    for step in path:
        place = place["items"] if step == "[]" else place["properties"][step]
    found: dict[str, Any] = place
    return found


def test_the_files_match_the_models() -> None:
    """When this fails, run `python -m nodesmith_cli.manifests.crds`."""
    assert {path.name: path.read_text() for path in DIRECTORY.glob("karpenter*.yaml")} == files()


def test_the_files_contain_what_is_applied() -> None:
    read = [yaml.safe_load(text) for text in files().values()]
    assert read == custom_resource_definitions()


def test_kinds_have_the_names_that_tools_use() -> None:
    names = {kind: crd["spec"]["names"] for kind, crd in CRDS.items()}
    assert {kind: crd["metadata"]["name"] for kind, crd in CRDS.items()} == {
        "NodePool": "nodepools.karpenter.sh",
        "NodeClaim": "nodeclaims.karpenter.sh",
        "EC2NodeClass": "ec2nodeclasses.karpenter.k8s.aws",
        "NodeOverlay": "nodeoverlays.karpenter.sh",
        "Provisioner": "provisioners.karpenter.sh",
        "AWSNodeTemplate": "awsnodetemplates.karpenter.k8s.aws",
    }
    assert all(each["categories"] == ["karpenter"] for each in names.values())
    assert names["EC2NodeClass"]["shortNames"] == ["ec2nc", "ec2ncs"]
    assert names["NodeOverlay"]["shortNames"] == ["overlays"]
    assert all(crd["spec"]["scope"] == "Cluster" for crd in CRDS.values())


@pytest.mark.parametrize("kind", CRDS)
def test_each_kind_is_stored_in_its_newest_version_and_has_a_status(kind: str) -> None:
    first = {"Provisioner": "v1alpha5", "AWSNodeTemplate": "v1alpha1", "NodeOverlay": "v1alpha1"}
    newest = first.get(kind, "v1")
    assert (version(kind)["name"], version(kind)["served"]) == (newest, True)
    assert version(kind)["subresources"]["status"] == {}


@pytest.mark.parametrize("kind", ["NodePool", "NodeClaim", "EC2NodeClass"])
def test_v1beta1_is_served_beside_v1_and_neither_drops_a_field_of_the_other(kind: str) -> None:
    versions = {each["name"]: each for each in CRDS[kind]["spec"]["versions"]}
    v1, before = (fields(each["schema"]["openAPIV3Schema"]) for each in versions.values())

    assert {name: each["served"] for name, each in versions.items()} == {"v1": True, "v1beta1": True}
    assert "conversion" not in CRDS[kind]["spec"], "no webhook to run"
    assert v1 == before


def fields(place: dict[str, Any], path: str = "") -> set[str]:
    """Return the paths of all fields in a schema."""
    found = {path}
    for name, inner in place.get("properties", {}).items():
        found |= fields(inner, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if word in place:
            found |= fields(place[word], f"{path}[]")
    return found


def test_a_pool_can_be_scaled() -> None:
    assert version("NodePool")["subresources"]["scale"] == {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.nodes",
    }


@pytest.mark.parametrize(
    ("kind", "shown", "wide"),
    [
        ("NodePool", ["NodeClass", "Nodes", "Ready", "Age"], ["Weight", "CPU", "Memory"]),
        (
            "NodeClaim",
            ["Type", "Capacity", "Zone", "Node", "Ready", "Age"],
            ["ImageID", "ID", "NodePool", "NodeClass", "Drifted"],
        ),
        ("EC2NodeClass", ["Ready", "Age"], ["Role"]),
        ("NodeOverlay", ["Ready", "Age"], ["Weight"]),
    ],
)
def test_kubectl_shows_the_columns_of_karpenter(kind: str, shown: list[str], wide: list[str]) -> None:
    columns = version(kind)["additionalPrinterColumns"]
    assert [column["name"] for column in columns if "priority" not in column] == shown
    assert [column["name"] for column in columns if column.get("priority") == 1] == wide


def structural(place: dict[str, Any]) -> bool:
    """Return whether every level has a type, as the API server requires."""
    inner = list(place.get("properties", {}).values())
    inner += [place[word] for word in ("items", "additionalProperties") if word in place]
    return ("type" in place or "x-kubernetes-int-or-string" in place) and all(map(structural, inner))


@pytest.mark.parametrize("kind", CRDS)
def test_the_schema_is_structural(kind: str) -> None:
    assert structural(version(kind)["schema"]["openAPIV3Schema"])


def test_defaults_are_filled_in_by_the_api_server_too() -> None:
    assert at("NodePool", "disruption")["default"] == {"consolidateAfter": "0s"}
    assert at("NodePool", "disruption", "budgets")["default"] == [{"nodes": "10%"}]
    assert at("NodePool", "template", "spec", "expireAfter")["default"] == "720h"
    assert at("EC2NodeClass", "metadataOptions")["default"]["httpTokens"] == "required"


def test_a_claim_never_changes_and_a_pool_keeps_the_kind_of_its_class() -> None:
    assert "self == oldSelf" in [rule["rule"] for rule in at("NodeClaim")["x-kubernetes-validations"]]
    frozen = at("NodePool", "template", "spec", "nodeClassRef")["x-kubernetes-validations"]
    assert [rule["rule"] for rule in frozen] == ["self.group == oldSelf.group", "self.kind == oldSelf.kind"]


def test_kubelet_fields_that_are_not_in_the_schema_are_kept() -> None:
    assert at("EC2NodeClass", "kubelet")["x-kubernetes-preserve-unknown-fields"] is True
    assert "x-kubernetes-preserve-unknown-fields" not in at("EC2NodeClass")


def test_rules_about_keys_become_rules_about_the_map() -> None:
    keys = Text(enum=("a", "b"), min_length=1, pattern=r"^\w$", rules=(Rule("self != 'x'", "no", None),))
    assert schema(Map(Text(), keys=keys))["x-kubernetes-validations"] == [
        {"rule": "self.all(key, key != 'x')", "message": "no"},
        {"rule": "self.all(key, key in ['a', 'b'])", "message": "known keys are a, b"},
        {"rule": "self.all(key, key != '')", "message": "keys must not be empty"},
        {"rule": r"self.all(key, key.matches('^\\w$'))", "message": r"keys must match ^\w$"},
    ]


def test_each_kind_of_field_has_its_schema() -> None:
    assert schema(Integer("Doc.", 1, 100)) == {
        "description": "Doc.",
        "type": "integer",
        "format": "int32",
        "minimum": 1,
        "maximum": 100,
    }
    assert schema(Integer()) == {"type": "integer", "format": "int64"}
    assert schema(Quantity())["x-kubernetes-int-or-string"] is True
    assert schema(Object({"a": Text()}, required=("a",), open=True)) == {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "x-kubernetes-preserve-unknown-fields": True,
    }
