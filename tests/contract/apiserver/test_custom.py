"""CustomResourceDefinitions: installed at run time, served at once, and validated by their schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.contract.servers import Call
from tests.patience import eventually

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def widget_definition(group: str) -> dict[str, Any]:
    parts = {
        "type": "array",
        "maxItems": 2,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}, "kind": {"type": "string", "default": "plain"}},
        },
    }
    spec = {
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 100},
            "replicas": {"type": "integer"},
            "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"},
            "after": {"type": "string", "pattern": r"^(([0-9]+(s|m|h))+|Never)$"},
            "share": {"x-kubernetes-int-or-string": True},
            "parts": parts,
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": True}}}},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
        "additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
            {"name": "Zone", "type": "string", "jsonPath": r".metadata.labels.topology\.kubernetes\.io/zone"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            {"name": "Colour", "type": "string", "jsonPath": ".spec.colour", "priority": 1},
        ],
    }  # fmt: skip
    names = {
        "plural": "widgets",
        "singular": "widget",
        "kind": "Widget",
        "shortNames": ["wd"],
        "categories": ["all"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {"group": group, "scope": "Cluster", "names": names, "versions": [version]},
    }


@dataclass(frozen=True, slots=True)
class Widgets:
    """A custom kind for a test, which is served."""

    call: Call
    group: str

    @property
    def definition(self) -> str:
        return f"{CRDS}/widgets.{self.group}"

    @property
    def all(self) -> str:
        return f"/apis/{self.group}/v1/widgets"

    @property
    def one(self) -> str:
        return f"{self.all}/w"

    def install(self) -> None:
        """Install the definition if it does not exist, and wait until it is served, as every client must."""
        assert self.call("POST", CRDS, widget_definition(self.group))[0] in (201, 409)
        eventually(lambda: self.call("GET", self.all)[0] == 200)

    def widget(self, **spec: Any) -> dict[str, Any]:
        api_version = f"{self.group}/v1"
        return {
            "apiVersion": api_version,
            "kind": "Widget",
            "metadata": {"name": "w"},
            "spec": {"size": 3, **spec},
        }


@pytest.fixture
def widgets(call: Call) -> Iterator[Widgets]:
    """A server that serves widgets but has none."""
    known = Widgets(call, "example.com")
    known.install()
    yield known
    call("DELETE", known.all)


@pytest.fixture
def own_widgets(call: Call, own: Callable[[str], str]) -> Iterator[Widgets]:
    """Widgets in a group of the test, which may change their definition."""
    known = Widgets(call, f"{own('widgets')}.example.com")
    known.install()
    yield known
    call("DELETE", known.definition)


def test_a_definition_is_established_and_served(widgets: Widgets) -> None:
    _, definition = widgets.call("GET", widgets.definition)
    conditions = {each["type"]: each["status"] for each in definition["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}

    _, found = widgets.call("GET", f"/apis/{widgets.group}/v1")
    assert [each["name"] for each in found["resources"]] == ["widgets", "widgets/status", "widgets/scale"]
    assert found["resources"][0]["shortNames"] == ["wd"]
    assert widgets.call("GET", widgets.all)[1]["kind"] == "WidgetList"


def test_defaults_are_filled_in_also_inside_lists(widgets: Widgets) -> None:
    _, created = widgets.call("POST", widgets.all, widgets.widget(parts=[{"name": "a"}]))

    assert created["spec"] == {"size": 3, "colour": "red", "parts": [{"name": "a", "kind": "plain"}]}
    assert created["metadata"]["generation"] == 1


def test_unknown_fields_are_pruned_except_where_the_schema_keeps_them(widgets: Widgets) -> None:
    _, created = widgets.call("POST", widgets.all, widgets.widget(weight=7, free={"any": {"thing": 1}}))

    assert "weight" not in created["spec"]
    assert created["spec"]["free"] == {"any": {"thing": 1}}


def test_strict_requests_report_unknown_fields(widgets: Widgets) -> None:
    code, status = widgets.call("POST", widgets.all, widgets.widget(weight=7), fieldValidation="Strict")

    assert code == 400
    assert 'unknown field "spec.weight"' in status["message"]


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({"size": 0}, "spec.size", "should be greater than or equal to 1"),
        ({"size": 101}, "spec.size", "should be less than or equal to 100"),
        ({"size": "three"}, "spec.size", 'must be of type integer: "string"'),
        ({"colour": "green"}, "spec.colour", 'Unsupported value: "green": supported values: "red", "blue"'),
        ({"after": "1 day"}, "spec.after", "should match '^(([0-9]+(s|m|h))+|Never)$'"),
        ({"share": [1]}, "spec.share", "must be of type integer,string"),
        ({"parts": [{"kind": "x"}]}, "spec.parts[0].name", "Required value"),
        ({"parts": [{"name": "a"}, {"name": "a"}]}, "spec.parts[1]", 'Duplicate value: {"name":"a"}'),
        ({"parts": [{"name": n} for n in "abc"]}, "spec.parts", "Too many: 3: must have at most 2 items"),
    ],
)
def test_schema_violations_are_refused_with_the_field(
    widgets: Widgets, spec: dict[str, Any], field: str, words: str
) -> None:
    code, status = widgets.call("POST", widgets.all, widgets.widget(**spec))

    assert (code, status["reason"]) == (422, "Invalid")
    assert status["message"].startswith(f'Widget.{widgets.group} "w" is invalid: ')
    causes = {each["field"]: each["message"] for each in status["details"]["causes"]}
    assert words in causes[field]


def test_a_missing_required_field_is_named(widgets: Widgets) -> None:
    given = widgets.widget()
    del given["spec"]["size"]

    _, status = widgets.call("POST", widgets.all, given)

    assert status["details"]["causes"][0] == {
        "reason": "FieldValueRequired",
        "message": "Required value",
        "field": "spec.size",
    }


def test_status_is_a_subresource_and_does_not_change_the_generation(widgets: Widgets) -> None:
    _, created = widgets.call("POST", widgets.all, {**widgets.widget(), "status": {"phase": "Forged"}})
    assert "status" not in created

    patch = {"status": {"phase": "Good"}, "spec": {"size": 9}}
    _, after = widgets.call("PATCH", f"{widgets.one}/status", patch, "application/merge-patch+json")

    assert (after["status"], after["spec"]["size"], after["metadata"]["generation"]) == (
        {"phase": "Good"},
        3,
        1,
    )


def test_strategic_merge_patches_of_custom_resources_are_refused(widgets: Widgets) -> None:
    widgets.call("POST", widgets.all, widgets.widget())

    code, status = widgets.call("PATCH", widgets.one, {}, "application/strategic-merge-patch+json")

    assert (code, status["reason"]) == (415, "UnsupportedMediaType")


def test_an_update_requires_a_resource_version(widgets: Widgets) -> None:
    assert widgets.call("PUT", widgets.one, widgets.widget(size=4))[0] == 404
    widgets.call("POST", widgets.all, widgets.widget())

    code, status = widgets.call("PUT", widgets.one, widgets.widget(size=4))

    assert code == 422
    assert "metadata.resourceVersion" in status["message"]


def test_printer_columns_come_from_the_definition(widgets: Widgets) -> None:
    given = widgets.widget()
    given["metadata"]["labels"] = {"topology.kubernetes.io/zone": "us-east-1a"}
    widgets.call("POST", widgets.all, given)
    ready = {
        "status": {
            "conditions": [{"type": "Drifted", "status": "False"}, {"type": "Ready", "status": "True"}]
        }
    }
    widgets.call("PATCH", f"{widgets.one}/status", ready, "application/merge-patch+json")

    _, table = widgets.call("GET", widgets.all, accept=TABLE)

    assert [each["name"] for each in table["columnDefinitions"]] == [
        "Name",
        "Size",
        "Ready",
        "Zone",
        "Age",
        "Colour",
    ]
    cells = table["rows"][0]["cells"]
    assert cells[:4] == ["w", 3, "True", "us-east-1a"]
    assert cells[4].endswith("s")


def test_the_scale_subresource_uses_the_definitions_paths(widgets: Widgets) -> None:
    widgets.call("POST", widgets.all, widgets.widget(replicas=2))

    _, scale = widgets.call(
        "PATCH", f"{widgets.one}/scale", {"spec": {"replicas": 5}}, "application/merge-patch+json"
    )

    assert scale["spec"]["replicas"] == 5
    assert widgets.call("GET", widgets.one)[1]["spec"]["replicas"] == 5


def test_apply_merges_lists_by_the_keys_of_the_definition(widgets: Widgets) -> None:
    apply, path = "application/apply-patch+yaml", widgets.one
    widgets.call("PATCH", path, widgets.widget(parts=[{"name": "a"}]), apply, fieldManager="alice")

    code, after = widgets.call(
        "PATCH", path, widgets.widget(parts=[{"name": "b"}]), apply, fieldManager="bob"
    )

    assert code == 200
    assert [each["name"] for each in after["spec"]["parts"]] == ["a", "b"]


def test_deleting_the_definition_deletes_its_objects_and_its_path(own_widgets: Widgets) -> None:
    own_widgets.call("POST", own_widgets.all, own_widgets.widget())

    own_widgets.call("DELETE", own_widgets.definition)

    eventually(lambda: own_widgets.call("GET", own_widgets.definition)[0] == 404)
    eventually(lambda: own_widgets.call("GET", own_widgets.all)[0] == 404)
    own_widgets.install()
    assert own_widgets.call("GET", own_widgets.all)[1]["items"] == []


def test_a_changed_definition_changes_what_is_served(own_widgets: Widgets) -> None:
    _, definition = own_widgets.call("GET", own_widgets.definition)
    definition["spec"]["versions"].append(
        {**definition["spec"]["versions"][0], "name": "v2", "storage": False}
    )
    assert own_widgets.call("PUT", own_widgets.definition, definition)[0] == 200
    # While a server loads the changed definition, it may briefly return 404 or 429.
    eventually(lambda: own_widgets.call("POST", own_widgets.all, own_widgets.widget())[0] in (201, 409))

    as_v2 = f"/apis/{own_widgets.group}/v2/widgets/w"
    eventually(lambda: own_widgets.call("GET", as_v2)[0] == 200)

    assert own_widgets.call("GET", as_v2)[1]["apiVersion"] == f"{own_widgets.group}/v2"


def test_an_invalid_definition_is_refused_and_not_served(call: Call, own: Callable[[str], str]) -> None:
    group = f"{own('wrong')}.example.com"
    wrong = widget_definition(group)
    wrong["metadata"]["name"] = "gadgets.example.com"
    wrong["spec"]["versions"][0]["schema"] = {}

    code, status = call("POST", CRDS, wrong)

    assert code == 422
    assert {each["field"] for each in status["details"]["causes"]} == {
        "metadata.name",
        "spec.versions[0].schema.openAPIV3Schema",
    }
    assert call("GET", f"/apis/{group}/v1/widgets")[0] == 404
