from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from nodesmith_formats.kubernetes.builtin import schema_of_kind
from nodesmith_formats.kubernetes.kinds import BUILTIN, Resource
from nodesmith_formats.manifests.manifests import Document, load_manifests

GOOD = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: default
spec:
  template:
    spec:
      requirements:
        - key: kubernetes.io/arch
          operator: In
          values: [amd64]
        - {key: "a.b/c", operator: Inn}
"""


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_broken_document_does_not_affect_others_and_is_named_by_file_and_line(tmp_path: Path) -> None:
    file = write(
        tmp_path, "mixed.yaml", f"{GOOD}---\nkind: [\n---\n{GOOD.replace('name: default', 'name: other')}"
    )

    manifests = load_manifests([file])

    assert [d.object for d in manifests.documents] == ["NodePool/default", "NodePool/other"]
    (fault,) = manifests.faults
    assert (fault.file, fault.document, fault.line) == (file, 2, 15)
    assert str(fault).startswith(f"{file}:15 (document 2): not YAML: ")


def test_the_line_of_a_field_is_found_through_lists_and_keys_with_dots(tmp_path: Path) -> None:
    file = write(tmp_path, "pool.yaml", f"# a pool\n---\n{GOOD}")
    (document,) = load_manifests([file]).documents

    assert document.fault("x", "spec.template.spec.requirements[0].operator").line == 12
    assert document.fault("x", "spec.template.spec.requirements[1].operator").line == 14
    assert document.fault("x", "spec.template.spec.nowhere.deeper").line == 9
    assert document.fault("x", "metadata.name").line == 6


def test_a_fault_reads_as_file_line_document_object_field_and_message(tmp_path: Path) -> None:
    file = write(tmp_path, "pool.yaml", GOOD)
    (document,) = load_manifests([file]).documents

    assert str(document.fault("must not be empty", "metadata.name")) == (
        f"{file}:4 (document 1, NodePool/default): metadata.name: must not be empty"
    )


def test_a_duplicate_key_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, "pod.yaml", "kind: Pod\napiVersion: v1\nmetadata:\n  name: a\n  name: b\n")

    (fault,) = load_manifests([file]).faults

    assert (fault.line, fault.field, fault.message) == (5, "metadata.name", "is given twice")


def test_values_are_read_as_the_tools_of_kubernetes_read_them(tmp_path: Path) -> None:
    text = (
        "{apiVersion: v1, kind: X, metadata: {name: a}, v: [2026-11-21, 12:30, 0644, 1e3, 500m, true, 1.5]}"
    )

    (document,) = load_manifests([write(tmp_path, "x.yaml", text)]).documents

    assert document.manifest["v"] == ["2026-11-21", "12:30", 0o644, 1000.0, "500m", True, 1.5]


def test_a_folder_gives_its_yaml_and_json_files_by_name(tmp_path: Path) -> None:
    write(tmp_path, "b.yml", "{apiVersion: v1, kind: B, metadata: {name: b}}")
    write(tmp_path, "a.json", '{"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}}')
    write(tmp_path, "README.md", "no manifest")

    manifests = load_manifests([str(tmp_path)])

    assert [d.object for d in manifests.documents] == ["A/a", "B/b"]
    assert manifests.faults == ()


def test_what_configures_kustomize_in_a_folder_of_manifests_is_no_mistake(tmp_path: Path) -> None:
    write(
        tmp_path, "kustomization.yaml", "{apiVersion: kustomize.config.k8s.io/v1beta1, kind: Kustomization}"
    )
    write(tmp_path, "a.yaml", "{apiVersion: v1, kind: A, metadata: {name: a}}")

    manifests = load_manifests([str(tmp_path)])

    assert [d.object for d in manifests.documents] == ["A/a"]
    assert manifests.faults == ()


def test_the_items_of_a_list_are_objects_of_their_own(tmp_path: Path) -> None:
    text = (
        "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: A, metadata: {name: a}}\n- {kind: B}\n"
    )

    manifests = load_manifests([write(tmp_path, "list.yaml", text)])

    assert [d.object for d in manifests.documents] == ["A/a"]
    (fault,) = manifests.faults
    assert (fault.line, fault.field) == (5, "apiVersion")


def test_standard_input_is_read_for_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode())))

    assert [d.file for d in load_manifests(["-"]).documents] == ["standard input"]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("just words", ""),
        ("kind: Pod\nmetadata: {name: a}", "apiVersion"),
        ("apiVersion: v1\nmetadata: {name: a}", "kind"),
        ("apiVersion: v1\nkind: Pod", "metadata"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {labels: {}}", "metadata.name"),
    ],
)
def test_a_value_that_is_not_an_object_is_reported_with_the_missing_field(
    tmp_path: Path, text: str, field: str
) -> None:
    manifests = load_manifests([write(tmp_path, "x.yaml", text)])

    assert manifests.documents == ()
    assert [fault.field for fault in manifests.faults] == [field]


@pytest.mark.parametrize("name", ["missing.yaml", "empty.yaml", "binary.yaml", "folder"])
def test_a_file_that_cannot_be_used_is_a_fault_not_a_crash(tmp_path: Path, name: str) -> None:
    write(tmp_path, "empty.yaml", "# nothing\n")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "folder").mkdir()

    (fault,) = load_manifests([str(tmp_path / name)]).faults

    assert name in str(fault)


def test_a_document_without_nodes_has_no_line() -> None:
    document = Document({"kind": "Pod", "metadata": {"name": "a"}}, "defaults")

    assert str(document.fault("bad", "spec")) == "defaults (document 1, Pod/a): spec: bad"


def test_a_file_that_is_not_there_is_not_taken_for_an_empty_folder(tmp_path: Path) -> None:
    (fault,) = load_manifests([str(tmp_path / "nowhere")]).faults

    assert fault.message == "No such file or directory"


@pytest.mark.parametrize("resource", BUILTIN, ids=lambda resource: resource.kind)
def test_the_fields_of_every_served_kind_are_known(resource: Resource) -> None:
    assert "metadata" in schema_of_kind(resource.group, resource.kind)["properties"]


def test_an_empty_name_does_not_stand_for_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n")
    monkeypatch.chdir(tmp_path)

    manifests = load_manifests([""])

    assert manifests.documents == ()
    assert [str(fault) for fault in manifests.faults] == ["'': is no file name"]


def test_items_that_are_not_a_list_are_a_fault_of_the_list(tmp_path: Path) -> None:
    text = "apiVersion: v1\nkind: List\nitems: {a: b}\n"

    (fault,) = load_manifests([write(tmp_path, "list.yaml", text)]).faults

    assert (fault.line, fault.field, fault.object) == (3, "items", "List")
    assert "must be a list of objects" in fault.message


def test_the_items_of_a_podlist_need_no_kind(tmp_path: Path) -> None:
    text = "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n- {kind: A, metadata: {name: b}}\n"

    manifests = load_manifests([write(tmp_path, "list.yaml", text)])

    assert [(d.object, d.manifest["apiVersion"]) for d in manifests.documents] == [
        ("Pod/a", "v1"),
        ("A/b", "v1"),
    ]


def test_an_object_given_twice_is_named_with_both_places_and_the_last_one_counts(tmp_path: Path) -> None:
    file = write(tmp_path, "pools.yaml", f"{GOOD}---\n{GOOD}  weight: 7\n")

    manifests = load_manifests([file])

    (document,) = manifests.documents
    assert document.manifest["spec"]["weight"] == 7
    (fault,) = manifests.faults
    assert (
        str(fault)
        == f"{file}:1 (document 1, NodePool/default): is given again in {file}:14, which takes precedence"
    )


def test_generated_names_and_other_namespaces_make_distinct_objects(tmp_path: Path) -> None:
    pods = [
        "{apiVersion: v1, kind: Pod, metadata: {generateName: a-}}",
        "{apiVersion: v1, kind: Pod, metadata: {name: a}}",
        "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: b}}",
    ]
    manifests = load_manifests([write(tmp_path, "pods.yaml", "\n---\n".join([*pods, pods[0]]))])

    assert (len(manifests.documents), manifests.faults) == (4, ())


def test_compressed_files_are_read_from_folders_and_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pool.yaml.gz").write_bytes(gzip.compress(GOOD.encode()))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(GOOD.encode()))))

    for path in (str(tmp_path), "-"):
        assert [d.object for d in load_manifests([path]).documents] == ["NodePool/default"]


def test_a_compressed_file_that_is_cut_short_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "pool.yaml.gz").write_bytes(gzip.compress(GOOD.encode())[:-9])

    (fault,) = load_manifests([str(tmp_path / "pool.yaml.gz")]).faults

    assert "pool.yaml.gz" in str(fault)
    assert "end" in fault.message


def large_list(items: list[dict[str, Any]], more: str = "") -> str:
    padding = json.dumps("x" * 200_000)
    return f'{{"apiVersion": "v1", "kind": "List", "note": {padding}, {more}"items": {json.dumps(items)}}}'


def test_a_large_json_file_yields_its_items_and_faults_name_each(tmp_path: Path) -> None:
    pods: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}},
        {"apiVersion": "v1", "kind": "Pod"},
    ]
    file = write(tmp_path, "dump.json", large_list(pods))

    manifests = load_manifests([file])

    (document,) = manifests.documents
    assert document.object == "Pod/a"
    assert str(document.fault("wrong", "spec.x")) == f"{file} (document 1, Pod/a): spec.x: wrong"
    assert [fault.field for fault in manifests.faults] == ["metadata"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (large_list([])[:-1], "not JSON"),
        (large_list([], '"kind": "List", '), "is given twice"),
        (large_list([], '"items": 1, ').replace('"items": []', '"other": 2'), "must be a list of objects"),
        ("[" * 200_000, "nested too deeply"),
    ],
)
def test_a_large_invalid_json_file_is_one_fault(tmp_path: Path, text: str, message: str) -> None:
    (fault,) = load_manifests([write(tmp_path, "dump.json", text)]).faults

    assert message in fault.message
