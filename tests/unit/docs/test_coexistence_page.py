"""What docs/coexistence.md and docs/operations.md say of other software in the cluster, and of the removal."""

from __future__ import annotations

import re
from pathlib import Path

from nodesmith_cli.sharing.findings import findings
from nodesmith_cli.sharing.ownership import LEASE_HELD, SHARED_CRDS, ClusterOwnership
from tests.objects import foreign

DOCS = Path(__file__).parents[3] / "docs"
PAGE, OPERATIONS = (DOCS / "coexistence.md").read_text(), (DOCS / "operations.md").read_text()
EVERYTHING = ClusterOwnership(
    crds={SHARED_CRDS[0]: "eks", SHARED_CRDS[1]: "helm"},
    karpenter=(LEASE_HELD,),
    foreign_nodepools=(foreign.auto_mode_nodepool(),),
    karpenters_nodeclaims=(foreign.karpenters_nodeclaim("a"),),
)


def test_every_finding_of_check_cluster_is_explained() -> None:
    explained = re.findall(r"^\| `([a-z-]+)`, (error|warning|info) \|", PAGE, re.MULTILINE)
    unseen = ClusterOwnership(crds={}, karpenter=("is Deployment kube-system/karpenter",))
    found = [*findings(EVERYTHING), *findings(unseen)]
    assert sorted(explained) == sorted((each.check, str(each.severity)) for each in found)


def test_findings_that_ask_for_something_say_what_to_do() -> None:
    assert all(each.remedy for each in findings(EVERYTHING) if each.severity != "info")
    order = [str(each.severity) for each in findings(EVERYTHING)]
    assert order == sorted(order, key=["error", "warning", "info"].index)


def test_the_removal_that_is_told_deletes_no_nodepool_of_others() -> None:
    assert "nodesmith uninstall" in OPERATIONS
    assert "delete nodepools --all" not in OPERATIONS
    assert "delete -k" not in OPERATIONS


def test_the_pages_that_speak_of_karpenter_lead_here() -> None:
    readme = (DOCS.parent / "README.md").read_text()
    assert "docs/coexistence.md" in readme
    assert "(coexistence.md)" in OPERATIONS
