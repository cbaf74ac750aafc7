from __future__ import annotations

import io
import socket
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from rich.console import Console, RenderableType

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.quantities import Resources
from nodesmith_cli.simulator.localcommands.kubeconfigs import kubeconfig_at
from nodesmith_cli.simulator.localcommands.progress import RunProgress
from nodesmith_cli.simulator.localcommands.view import latency_table, screen
from nodesmith_formats.prices import Price
from nodesmith_local.runs.latency import Latency
from nodesmith_local.runs.report import NodeReport, PendingPod, Report
from nodesmith_local.runs.timeline import Entry

GIB = 2**30
KUBECONFIG = {"contexts": [{"name": "nodesmith-local"}], "current-context": "nodesmith-local"}


def node(name: str, price: Price | None, *, pods: int = 4, ready: bool = True) -> NodeReport:
    return NodeReport(
        name=f"{name}.ec2.internal",
        nodepool="default",
        instance_type="c7a.2xlarge",
        zone="us-east-1a",
        capacity_type="spot",
        price=price,
        requested=Resources({"cpu": 1000 * pods, "memory": GIB * pods}),
        allocatable=Resources({"cpu": 8000, "memory": 16 * GIB, "pods": 58}),
        pods=tuple(f"default/{name}-{number}" for number in range(pods)),
        ready=ready,
    )


def drawn(what: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=120, markup=False)
    console.print(what)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_header_sums_nodes_pods_use_and_price() -> None:
    report = Report(
        (node("a", Price(0.1)), node("b", Price(0.2, estimated=True), pods=8)),
        (PendingPod("default/c", "none"),),
        running=11,
    )

    lines = drawn(screen(report)).splitlines()

    assert lines[0].split()[:6] == ["2", "nodes", "12/16", "cores", "75.0%", "cpu"]
    assert lines[1].startswith("~$0.3000/hour | ~$219/month")
    assert "12.0/32.0 GiB" in lines[1]
    assert "37.5% memory" in lines[1]
    assert lines[2] == "13 pods (1 pending, 11 running, 12 bound)"


def test_a_node_is_shown_with_its_price_marked_where_it_is_an_estimate_and_with_its_bars() -> None:
    shown = drawn(
        screen(Report((node("a", Price(0.1, estimated=True)), node("b", None, pods=0, ready=False)), ()))
    )

    first, second = (line for line in shown.splitlines() if "us-east-1a" in line)
    assert (
        first.split() == "a us-east-1a c7a.2xlarge spot ~$0.1000 ████░░░░ 50% ██░░░░░░ 25% 4/58 Ready".split()
    )
    assert second.split() == "b us-east-1a c7a.2xlarge spot ? ░░░░░░░░ 0% ░░░░░░░░ 0% 0/58 NotReady".split()


@pytest.mark.parametrize("width", [80, 90, 100, 120, 200])
def test_only_a_nodes_name_is_ever_cut_short(width: int) -> None:
    large = replace(node("ip-10-0-100-100", Price(12.5, estimated=True), ready=False), zone="us-east-1a")
    large = replace(large, instance_type="c6gn.16xlarge", capacity_type="on-demand")
    console = Console(file=io.StringIO(), width=width, markup=False)

    console.print(screen(Report((large, node("b", Price(0.1))), ()), width))

    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    (shown,) = (line for line in lines if "c6gn.16xlarge" in line)
    for whole in ("us-east-1a", "on-demand", "~$12.5000", "50%", "25%", "4/58", "NotReady"):
        assert whole in shown


def test_pending_pods_are_shown_by_reason_including_brackets() -> None:
    alike = tuple(PendingPod(f"default/p{n}", "needs [spot], spec.x[0]") for n in range(12))

    shown = drawn(screen(Report((), (*alike, PendingPod("default/z", "too big"))))).splitlines()

    assert shown[-2].split("  ") == ["default/p0 and 11 more", "needs [spot], spec.x[0]"]
    assert shown[-1].split() == ["default/z", "too", "big"]


def test_waits_are_shown_in_seconds() -> None:
    assert (
        drawn(latency_table([Latency("bound", 41.25, 44.0, 20)])).split()[-6:]
        == "bound 41.2 s 44.0 s 20".split()
    )


def test_without_a_terminal_each_stage_and_each_finished_step_is_a_line() -> None:
    console = Console(file=io.StringIO(), width=120)
    now = datetime(2026, 11, 21, tzinfo=UTC)

    with RunProgress(console) as progress:
        with progress.stage("starting AWS"):
            pass
        for name in ("a", "b", "c"):
            progress.entry(Entry(now, "pending", f"Pod/default/{name}"))
        progress.entry(Entry(now, "decided", "Decision/1", "2 nodes at $0.1/hour for 3 pods"))
        progress.entry(Entry(now, "decided", "Decision/2", "3 waiting for in-flight nodes"))
        for name in ("a", "b"):
            progress.entry(Entry(now + timedelta(seconds=4), "launched", f"NodeClaim/{name}"))
        progress.entry(Entry(now, "not ready", "NodePool/p", "because"))
        progress.entry(Entry(now + timedelta(seconds=9), "joined", "Node/a"))

    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert lines[0].startswith("starting AWS: ")
    assert lines[1:] == [
        "decided: 2 nodes at $0.1/hour for 3 pods",
        "NodePool/p: not ready: because",
        "nodes launched: 2, after 4.0 s of the cluster's time",
        "nodes joined: 1, after 9.0 s of the cluster's time",
    ]


def test_the_kubeconfig_exists_for_its_owner_while_the_cluster_runs(tmp_path: Path) -> None:
    path = tmp_path / "new" / "config"

    with kubeconfig_at(path, KUBECONFIG):
        assert "nodesmith-local" in path.read_text()
        assert path.stat().st_mode & 0o777 == 0o600

    assert not path.exists()


def test_a_kubeconfig_of_another_cluster_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("contexts: [{name: production}]")

    with pytest.raises(Rejected, match="stays untouched"), kubeconfig_at(path, KUBECONFIG):
        pass

    assert path.read_text() == "contexts: [{name: production}]"


def test_a_kubeconfig_that_an_earlier_run_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("contexts: [{name: nodesmith-local}]\nclusters: [old]")

    with kubeconfig_at(path, KUBECONFIG):
        assert "old" not in path.read_text()


def test_the_kubeconfig_of_a_local_cluster_that_runs_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "config"
    with socket.create_server(("127.0.0.1", 0)) as server:
        running = {
            **KUBECONFIG,
            "clusters": [{"cluster": {"server": f"http://127.0.0.1:{server.getsockname()[1]}"}}],
        }
        path.write_text(yaml.safe_dump(running))

        with pytest.raises(Rejected, match="still runs at http://127"), kubeconfig_at(path, KUBECONFIG):
            pass
        assert yaml.safe_load(path.read_text()) == running

    with kubeconfig_at(path, KUBECONFIG):
        assert yaml.safe_load(path.read_text()) == KUBECONFIG


def test_a_kubeconfig_that_somebody_else_wrote_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / "config"

    with kubeconfig_at(path, KUBECONFIG):
        path.write_text("contexts: []")

    assert path.read_text() == "contexts: []"
