"""Output and files of `local up` with several clusters, unchanged for a single one."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from nodesmith.errors import Rejected
from nodesmith.registration import CLUSTER_NAME
from nodesmith_cli.main import app
from nodesmith_cli.simulator.localcommands.greeting import greeting
from nodesmith_cli.simulator.localcommands.kubeconfigs import kubeconfig_at, merged, renamed
from nodesmith_cli.simulator.localcommands.upcommand import line_of
from nodesmith_cli.simulator.localcommands.view import cluster_views
from nodesmith_cli.views.explaining.commands import RecordSource
from nodesmith_formats.localsystem.contexts import kubeconfig_of
from nodesmith_formats.manifests.manifests import Document, load_manifests
from nodesmith_formats.manifests.places import numbered
from nodesmith_formats.shipped import shipped
from nodesmith_local.runs.ownmanifests import of_cluster
from nodesmith_local.runs.report import Report
from nodesmith_local.runs.system import LocalSystem, Place
from nodesmith_local.runs.timeline import Entry

EXPRESS = shipped("_examples", "examples") / "express-test"
ENTRY = Entry(datetime(2026, 11, 21, 8, 0, 5, tzinfo=UTC), "bound", "Pod/default/web", "ip-10-0-0-4")
NOTHING = Report((), ())


def kubeconfig(server: str) -> dict[str, Any]:
    """Return a kubeconfig in the form of an API server's."""
    return kubeconfig_of("nodesmith-local", server)


def drawn(*clusters: str) -> str:
    file = io.StringIO()
    Console(file=file, width=120).print(cluster_views(dict.fromkeys(clusters, NOTHING)))
    return file.getvalue()


def greeted(*names: str, page: str = "", keep: Path | None = None) -> Sequence[str]:
    clusters = [
        SimpleNamespace(
            name=name, cluster=SimpleNamespace(url=f"http://{name}"), metrics_url=f"http://{name}/metrics"
        )
        for name in names
    ]
    system = SimpleNamespace(
        clusters=clusters,
        first=clusters[0],
        place=SimpleNamespace(region="us-east-1"),
        aws=SimpleNamespace(url="http://aws"),
        log="local.log",
    )
    return list(greeting(cast(LocalSystem, system), Path("config"), page, keep))


def test_the_greeting_has_the_link_to_the_page_and_says_of_which_cluster() -> None:
    link = "http://127.0.0.1:1/enter/x"
    assert f"page at {link}" in greeted("one", page=link)
    assert f"page of one at {link}" in greeted("one", "two", page=link)
    assert not any("page" in line for line in greeted("one"))


def test_the_greeting_names_the_folder_of_records_if_one_was_chosen() -> None:
    assert "  nodesmith explain decision latest" in greeted("one")
    assert "  nodesmith explain decision latest --keep 'my records'" in greeted(
        "one", keep=Path("my records")
    )


@pytest.mark.parametrize("count", ["0", "6"])
def test_an_invalid_number_of_clusters_is_refused_with_the_bounds(count: str) -> None:
    ran = CliRunner().invoke(app, ["local", "up", "--clusters", count])
    assert ran.exit_code != 0
    assert f"--clusters {count}: must be between 1 and 5" in str(ran.exception) + ran.output


def test_ports_out_of_range_are_refused() -> None:
    ran = CliRunner().invoke(app, ["local", "up", "--clusters", "2", "--port", "65535"])
    assert ran.exit_code != 0
    assert "must be between 0 and 65534, because 2 clusters need as many ports" in str(ran.exception)


def test_clusters_are_numbered_and_their_names_stay_valid() -> None:
    assert Place("us-east-1", "web", clusters=3).names == ("web", "web-2", "web-3")
    longest = "c" * 64
    assert CLUSTER_NAME.fullmatch(numbered(longest, 2))
    assert len({numbered(longest, number) for number in range(1, 6)}) == 5


def test_a_kubeconfig_of_several_clusters_has_a_context_for_each_and_the_first_is_current() -> None:
    second = renamed(kubeconfig("http://2"), "nodesmith-local-2")
    both = merged([kubeconfig("http://1"), second])
    assert both["current-context"] == "nodesmith-local"
    assert [each["name"] for each in both["contexts"]] == ["nodesmith-local", "nodesmith-local-2"]
    assert both["contexts"][1]["context"] == {
        "cluster": "nodesmith-local-2",
        "user": "nodesmith-local-2",
        "namespace": "default",
    }
    assert {each["name"]: each["cluster"]["server"] for each in both["clusters"]} == {
        "nodesmith-local": "http://1",
        "nodesmith-local-2": "http://2",
    }
    assert merged([kubeconfig("http://1")]) == kubeconfig("http://1")


def test_the_kubeconfig_is_removed_even_if_kubectl_has_chosen_another_context(
    tmp_path: Path,
) -> None:
    second = renamed(kubeconfig("http://127.0.0.1:9"), "nodesmith-local-2")
    both = merged([kubeconfig("http://127.0.0.1:8"), second])
    with kubeconfig_at(tmp_path / "config", both) as path:
        path.write_text(yaml.safe_dump({**both, "current-context": "nodesmith-local-2"}))
    assert not path.exists()


@pytest.mark.parametrize(
    "text",
    [
        "# notes\n",
        "contexts: [a]",
        "contexts: {a: 1}",
        "contexts: 5",
        "[1, 2]",
        "text",
        "contexts: [{a: 1}]",
        "a: [",
    ],
)
def test_a_file_of_another_kind_is_neither_overwritten_nor_removed(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    with (
        pytest.raises(Rejected, match="is not a kubeconfig of `local up` alone, and stays untouched"),
        kubeconfig_at(file, kubeconfig("http://127.0.0.1:9")),
    ):
        raise AssertionError
    assert file.read_text() == text


def test_an_empty_file_becomes_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "config").touch()
    with kubeconfig_at(
        tmp_path / "config", renamed(kubeconfig("http://127.0.0.1:9"), "nodesmith-local")
    ) as path:
        assert "nodesmith-local" in path.read_text()
    assert not path.exists()


def test_the_cluster_that_decided_last_is_named_when_a_folder_keeps_several(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for age, name in enumerate(("web", "web-2")):
        folder = tmp_path / "clusters" / name / "decisions"
        folder.mkdir(parents=True)
        os.utime(folder, (1_000_000 - age,) * 2)
        records, _ = RecordSource(keep=tmp_path).records()
        assert records.cluster == "web"
    assert capsys.readouterr().err == (
        "showing cluster web, which decided last; use --cluster for another: web-2\n"
    )
    assert RecordSource("web-2", keep=tmp_path).records()[0].cluster == "web-2"
    assert capsys.readouterr().err == ""


def test_a_milestone_names_its_cluster_where_there_are_several() -> None:
    assert line_of(ENTRY) == "08:00:05 Pod/default/web bound ip-10-0-0-4"
    assert line_of(ENTRY, "web-2") == "08:00:05 web-2 Pod/default/web bound ip-10-0-0-4"


def test_each_of_several_clusters_is_shown_under_its_name() -> None:
    assert "cluster" not in drawn("web")
    assert [line for line in drawn("web", "web-2").splitlines() if "cluster" in line] == [
        "cluster web",
        "cluster web-2",
    ]


def test_the_greeting_of_one_cluster_names_no_context_and_that_of_several_each() -> None:
    alone = greeted("web")
    assert alone[0] == "cluster web in us-east-1, API server http://web"
    assert "metrics for Prometheus at http://web/metrics" in alone
    assert not [line for line in alone if "context" in line]
    both = greeted("web", "web-2")
    assert both[:2] == [
        "cluster web in us-east-1, API server http://web, context nodesmith-local",
        "cluster web-2 in us-east-1, API server http://web-2, context nodesmith-local-2",
    ]
    assert "metrics for Prometheus of web-2 at http://web-2/metrics" in both


def test_manifests_for_the_first_cluster_are_adapted_to_another_unless_they_name_others() -> None:
    documents = load_manifests([str(EXPRESS / "nodeclass.yaml")]).documents
    (own,) = of_cluster(documents, "web-2", "nodesmith-local")
    assert own.manifest["spec"]["role"] == "KarpenterNodeRole-web-2"
    assert own.manifest["spec"]["subnetSelectorTerms"] == [{"tags": {"karpenter.sh/discovery": "web-2"}}]
    others = Document(
        {
            "apiVersion": "karpenter.k8s.aws/v1",
            "kind": "EC2NodeClass",
            "metadata": {"name": "others"},
            "spec": {
                "role": "nodes",
                "subnetSelectorTerms": [{"tags": {"tier": "private"}}, {"id": "subnet-1"}],
                "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": "another"}}],
            },
        },
        "x.yaml",
    )
    (kept,) = of_cluster([others], "web-2", "web")
    assert kept.manifest["spec"] == {
        "role": "nodes",
        "subnetSelectorTerms": [
            {"tags": {"tier": "private", "karpenter.sh/discovery": "web-2"}},
            {"id": "subnet-1"},
        ],
        "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": "another"}}],
    }
