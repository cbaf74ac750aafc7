"""JSONPath templates of -o, in kubectl's dialect."""

from __future__ import annotations

import pytest

from nodesmith.errors import Rejected
from nodesmith_cli.output.jsonpaths import selected

DATA = {
    "nodes": [
        {"name": "a", "zone": "z1", "price": 0.5, "labels": {"app.kubernetes.io/name": "web"}},
        {"name": "b", "zone": "z2", "price": 2.0, "labels": {}},
    ],
    "paused": None,
    "ready": True,
}


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        ("{.nodes[*].name}", "a b"),
        (".nodes[*].name", "a b"),
        ("{$.nodes[0].name}", "a"),
        ("{.nodes[-1].name}", "b"),
        ("{.nodes[0:1].name}", "a"),
        ("{..zone}", "z1 z2"),
        ("{.nodes[?(@.zone=='z2')].name}", "b"),
        ("{.nodes[?(@.price>1)].name}", "b"),
        ("{.nodes[*]['name','zone']}", "a z1 b z2"),
        (r"{.nodes[0].labels.app\.kubernetes\.io/name}", "web"),
        ("{.nodes[0].labels}", '{"app.kubernetes.io/name":"web"}'),
        ('{range .nodes[*]}{.name}{"\\t"}{.price}{"\\n"}{end}', "a\t0.5\nb\t2.0\n"),
        ("{range .nodes[*]}{@.name};{end}", "a;b;"),
        ("{range .none[*]}{.name}{end}none", "none"),
        ("all: {.nodes[*].name}.", "all: a b."),
        ("{.missing}", ""),
        ("{.paused}{.ready}", "true"),
        ("{'it is'}", "it is"),
    ],
)
def test_a_template_selects_what_kubectl_would_select(template: str, shown: str) -> None:
    assert selected(template, DATA) == shown


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{.nodes[}", "{.nodes[}: "),
        ("{.nodes[*].name", "braces are not balanced"),
        ("{range .nodes[*]}{.name}", "has no {end}"),
        ("{.ready}{end}", "{end} without {range}"),
        ("{'open}", "braces are not balanced"),
        ("{range .nodes}" * 9 + "{end}" * 9, "more than 5 {range}"),
        ("x" * 3_000, "3,000 characters"),
    ],
)
def test_a_template_that_cannot_be_read_is_rejected_with_its_expression(template: str, why: str) -> None:
    with pytest.raises(Rejected, match="-o jsonpath") as error:
        selected(template, DATA)

    assert why in str(error.value)
