"""`nodesmith hash` on realistic files: several objects, old, invalid and foreign ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from nodesmith_cli.main import app
from tests import builders
from tests.karpenterhashes import kept
from tests.objects import foreign

POOL = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", **builders.nodepool_manifest()}
CLASS = {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", **builders.nodeclass_manifest()}
PROVISIONER = """\
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: old}
spec:
  labels: {team: blue}
  providerRef: {name: old}
---
apiVersion: karpenter.k8s.aws/v1alpha1
kind: AWSNodeTemplate
metadata: {name: old}
spec:
  subnetSelector: {karpenter.sh/discovery: blue}
  securityGroupSelector: {karpenter.sh/discovery: blue}
  instanceProfile: nodes
"""


def hashed(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["hash", *arguments], input=stdin)


def rows(*arguments: str, stdin: str | None = None, status: int = 0) -> list[dict[str, str]]:
    result = hashed(*arguments, "-o", "json", stdin=stdin)
    assert result.exit_code == status, result.stderr
    found: list[dict[str, str]] = json.loads(result.stdout)
    return found


def written(*manifests: Any) -> str:
    return yaml.safe_dump_all(manifests)


def test_hashes_of_many_objects_are_karpenters() -> None:
    objects = [each for each in kept() if not each.ca_bundle]
    assert len(objects) > 200
    expected = [
        {
            "kind": each.manifest["kind"],
            "name": each.manifest["metadata"]["name"],
            "hash": each.hash,
            "version": each.version,
        }
        for each in objects
    ]
    items = {"apiVersion": "v1", "kind": "List", "items": [each.manifest for each in objects]}
    assert rows("-f", "-", stdin=json.dumps(items)) == expected


@pytest.mark.parametrize("bundle", ["%%", "-----BEGIN CERTIFICATE-----", "QUJD\nREVG", "QUJ", "ü"])
def test_a_ca_bundle_that_is_not_base64_is_refused(bundle: str) -> None:
    refused = hashed("-f", "-", "--cluster-ca-bundle", bundle, stdin=written(CLASS))
    assert str(refused.exception).startswith("--cluster-ca-bundle: is not base64 in one line")


def test_with_the_cluster_ca_bundle_the_hash_equals_the_annotation() -> None:
    each = next(each for each in kept() if each.ca_bundle)
    (row,) = rows("-f", "-", "--cluster-ca-bundle", each.ca_bundle, stdin=json.dumps(each.manifest))
    assert (row["hash"], row["version"]) == (each.hash, each.version)
    alone = hashed("-f", "-", stdin=json.dumps(each.manifest))
    assert each.hash not in alone.stdout
    assert "--cluster-ca-bundle" in alone.stderr


def test_files_and_folders_are_read_in_order_and_other_kinds_ignored(tmp_path: Path) -> None:
    folder, file = tmp_path / "folder", tmp_path / "pool.yaml"
    folder.mkdir()
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}
    (folder / "b.yml").write_text(written(CLASS, namespace))
    (folder / "a.json").write_text(json.dumps(POOL))
    renamed = {**POOL, "metadata": {**POOL["metadata"], "name": "other"}}
    file.write_text(
        written({"apiVersion": "apps.example.com/v1", "kind": "NodePool", "metadata": {"name": "x"}}, renamed)
    )
    found = rows("-f", str(folder), str(file))
    assert [(row["kind"], row["name"]) for row in found] == [
        ("NodePool", "default"),
        ("EC2NodeClass", "default"),
        ("NodePool", "other"),
    ]
    assert found[0]["hash"] == found[2]["hash"]
    assert [row["version"] for row in found] == ["v3", "v5", "v3"]


def test_the_table_has_a_line_for_each_object() -> None:
    result = hashed("-f", "-", stdin=written(POOL, CLASS))
    title, *lines = (line.split() for line in result.stdout.splitlines())
    assert title == ["KIND", "NAME", "HASH", "VERSION"]
    assert [line[:2] + line[3:] for line in lines] == [
        ["NodePool", "default", "v3"],
        ["EC2NodeClass", "default", "v5"],
    ]


def test_the_page_shows_what_the_command_prints() -> None:
    page = (Path(__file__).parents[3] / "docs/concerns/readiness.md").read_text()
    shown = page.partition("$ nodesmith hash -f examples/express-test/\n")[2].partition("```")[0]
    assert hashed("-f", "examples/express-test/").stdout == shown


def test_old_objects_have_the_hashes_of_their_converted_form() -> None:
    converted = CliRunner().invoke(app, ["convert", "-f", "-"], input=PROVISIONER)
    found = rows("-f", "-", stdin=PROVISIONER)
    assert [row["kind"] for row in found] == ["NodePool", "EC2NodeClass"]
    assert found == rows("-f", "-", stdin=converted.stdout)


def test_the_instance_profile_comes_from_the_settings_of_an_old_installation() -> None:
    bare = PROVISIONER.replace("  instanceProfile: nodes\n", "")
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "karpenter-global-settings", "namespace": "karpenter"},
        "data": {"aws.defaultInstanceProfile": "nodes"},
    }
    assert rows("-f", "-", stdin=f"{bare}---\n{written(settings)}") == rows("-f", "-", stdin=PROVISIONER)
    assert rows("-f", "-", stdin=bare) != rows("-f", "-", stdin=PROVISIONER)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (
            {**POOL, "metadata": {"name": "bad"}, "spec": {"template": {"spec": {"requirements": []}}}},
            "NodePool/bad): spec.template.spec.nodeClassRef: is missing",
        ),
        (
            {**CLASS, "metadata": {"name": "bad"}, "spec": {**CLASS["spec"], "tags": {"a": 1}}},
            "EC2NodeClass/bad): spec.tags.a: is 1: must be text",
        ),
        (
            {**POOL, "apiVersion": "karpenter.sh/v2", "metadata": {"name": "bad"}},
            "NodePool/bad): apiVersion: is 'karpenter.sh/v2', but a NodePool is in karpenter.sh/v1",
        ),
    ],
)
def test_an_invalid_object_is_reported_with_its_field_and_does_not_stop_others(
    bad: dict[str, Any], said: str
) -> None:
    stdin = written(bad, POOL, CLASS)
    assert [row["kind"] for row in rows("-f", "-", stdin=stdin, status=1)] == ["NodePool", "EC2NodeClass"]
    assert said in hashed("-f", "-", stdin=stdin).stderr


def test_an_unreadable_file_does_not_stop_others(tmp_path: Path) -> None:
    (tmp_path / "pool.yaml").write_text(written(POOL))
    (tmp_path / "torn.yaml").write_text("kind: [")
    missing = str(tmp_path / "missing.yaml")
    assert len(rows("-f", str(tmp_path), "-f", missing, status=2)) == 1
    said = hashed("-f", str(tmp_path), "-f", missing).stderr
    assert "torn.yaml:2 (document 1): not YAML" in said
    assert "missing.yaml: No such file" in said


def test_a_nodepool_of_other_software_has_no_hash() -> None:
    result = hashed("-f", "-", "-o", "json", stdin=written(foreign.auto_mode_nodepool("system")))
    assert (result.exit_code, json.loads(result.stdout)) == (0, [])
    assert "EKS Auto Mode" in result.stderr
