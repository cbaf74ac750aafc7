"""`nodesmith savings` as users run it: a live cluster as input, a report as output, and not one write."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodesmith.model.karpenter.nodeclaimobjects import DECISION
from nodesmith_cli.costs.savings.page import savings_page
from tests.objects.foreign import karpenters_nodeclaim
from tests.objects.savingsclusters import budget, karpenter, node, nodepool, pod, sparse, zone_spread
from tests.processes.plancommand import Ran, command
from tests.servers.recordingserver import RecordingServer

HOSTILE = '<script>alert("x")</script>\x1b[31m'
_VOID = {"meta", "br", "!doctype"}


class Report(Ran):
    """A run and the server that it read."""

    @property
    def data(self) -> dict[str, Any]:
        """The report on standard output, which must contain nothing else."""
        found: dict[str, Any] = json.loads(self.out)
        return found


Run = Callable[..., Report]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return `nodesmith savings` as a function of its arguments, with estimated spot prices."""
    savings = command(monkeypatch, capsys, "savings")
    always = "--spot-prices", "estimate"
    return lambda kubeconfig, *given: Report(*savings("--kubeconfig", kubeconfig, *always, *given))


def cluster() -> list[dict[str, Any]]:
    """Return a cluster of several owners with hostile names, unknown types and rules that keep nodes."""
    found = sparse(4, seed=3)
    found += [node(f"k-{n}", labels=karpenter()) for n in range(3)]
    found += [pod(f"wide-{n}", f"k-{n}", "wide", **zone_spread("wide")) for n in range(3)]
    found += [pod("kept", "k-0", "kept", "100m", annotations={"karpenter.sh/do-not-disrupt": "true"})]
    found += [budget("never", "wide", allowed=0, expected=3, maxUnavailable=0)]
    found += [node("huge", "x99.huge", labels={"eks.amazonaws.com/nodegroup": HOSTILE})]
    found += [pod(f"d-{n}", f"k-{n}", HOSTILE, "100m", "64Mi", owner="DaemonSet") for n in range(3)]
    return [*found, nodepool()]


def usage(manifests: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [
        {
            "metadata": {"namespace": "default", "name": each["metadata"]["name"]},
            "containers": [{"name": "main", "usage": {"cpu": "20m", "memory": "100Mi"}}],
        }
        for each in manifests
        if each["kind"] == "Pod"
    ]


def test_the_cluster_is_only_read_and_page_by_page(run: Run, tmp_path: Path) -> None:
    with RecordingServer(sparse(24), usage=[]) as server:
        ran = run(server.kubeconfig(tmp_path), "-o", "json")

    assert (ran.status, ran.err) == (0, "")
    assert {each.method for each in server.asked} == {"GET"}
    assert all("limit=" in each.query for each in server.asked)
    pods = [each for each in server.asked if each.path == "/api/v1/pods"]
    assert len(pods) == -(-ran.data["cluster"]["pods"] // 100) > 1


def test_the_report_has_its_documented_fields(run: Run, tmp_path: Path) -> None:
    manifests = cluster()
    with RecordingServer(manifests, usage=usage(manifests)) as server:
        data = run(server.kubeconfig(tmp_path), "-o", "json").data

    text = (Path(__file__).parents[3] / "docs" / "savings.md").read_text()
    assert {field for field in data if f"`{field}" not in text} == set()
    assert data["schemaVersion"] == 1
    assert data["cluster"]["region"] == "us-east-1"
    assert data["now"]["monthly"] == pytest.approx(data["now"]["hourly"] * 730, abs=0.01)
    assert data["lowerBound"]["hourly"] <= data["repacked"]["hourly"] <= data["now"]["hourly"]
    assert data["reachable"]["hourly"] <= data["now"]["hourly"]
    assert {each["software"] for each in data["owners"]} == {"Karpenter", "EKS managed node group"}
    assert {each["rule"] for each in data["kept"]} >= {"DoNotDisrupt", "PodDisruptionBudget"}
    assert [each["node"] for each in data["unknown"]] == ["huge"]
    assert data["oversized"]["workloads"]
    spent = sum(data["spending"].values())
    assert spent == pytest.approx(data["now"]["monthly"], abs=0.05)


def test_what_may_not_be_read_is_said_and_the_rest_goes_on(run: Run, tmp_path: Path) -> None:
    forbidden = ("NodePool", "PodDisruptionBudget", "/apis/metrics.k8s.io/v1beta1/pods")
    with RecordingServer(cluster(), forbidden=forbidden, usage=[]) as server:
        ran = run(server.kubeconfig(tmp_path))

    assert ran.status == 0
    assert "! NodePool: may not be listed (403 Forbidden): NodePools are assumed" in unwrapped(ran.out)
    assert "no PodDisruptionBudget is respected" in unwrapped(ran.out)
    assert "Use of requests is not known: metrics.k8s.io may not be read" in unwrapped(ran.out)


def test_nodeclaims_without_an_instance_and_unreadable_ones_are_said_and_the_rest_goes_on(
    run: Run, tmp_path: Path
) -> None:
    manifests = cluster()
    with RecordingServer(manifests) as server:
        (tmp_path / "before").mkdir()
        before = run(server.kubeconfig(tmp_path / "before"), "-o", "json")
    coming = karpenters_nodeclaim("coming")
    broken = {**karpenters_nodeclaim("[red]broken"), "spec": 7, "status": "none"}
    with RecordingServer([*manifests, coming, broken]) as server:
        ran = run(server.kubeconfig(tmp_path), "-o", "json")
    assert ran.status == 0
    found, without = json.loads(ran.out), json.loads(before.out)
    assert "Not priced: 2 NodeClaims without a Node." in found["caveats"]
    assert found["now"] == without["now"]
    assert found["reachable"]["hourly"] == without["reachable"]["hourly"]


def test_nodes_that_nodesmith_manages_already_are_not_offered_to_it(run: Run, tmp_path: Path) -> None:
    manifests = [
        node("k-0", labels=karpenter()),
        node("k-1", labels=karpenter()),
        pod("stuck", ""),
        nodepool(),
    ]
    ours = karpenters_nodeclaim("ours", instance="i-0")
    ours["metadata"]["annotations"] = {DECISION: "20260110T000000Z-00000000"}
    ours["status"]["providerID"] = manifests[0]["spec"]["providerID"]
    with RecordingServer([*manifests, ours]) as server:
        reported = run(server.kubeconfig(tmp_path)).out
        shown = run(server.kubeconfig(tmp_path), "-o", "html").out

    assert ">it does</td>" in shown
    owners = [line.split() for line in reported.splitlines() if line.startswith(("nodesmith ", "Karpenter "))]
    assert [(line[0], " ".join(line[4:])) for line in owners] == [
        ("Karpenter", "can be taken over"),
        ("nodesmith", ""),
    ]
    assert "In none of the figures: 1 pod without a node." in unwrapped(reported)


def unwrapped(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("manifests", "forbidden", "said"),
    [
        ([], (), "the cluster has no nodes"),
        (
            [node("n", "x99.huge")],
            (),
            "the price of the cluster's only node is not known: n: its instance type",
        ),
        (
            [node("n", "x99.huge"), node("m", "x99.huge")],
            (),
            "none of the cluster's 2 nodes has a known price: ",
        ),
        ([node("n")], ("Pod",), "without Pods nothing can be priced"),
        (
            [
                node(
                    "n", labels={"topology.kubernetes.io/zone": "", "topology.kubernetes.io/region": "mars-1"}
                )
            ],
            (),
            "region: 'mars-1' is not in the embedded catalogue",
        ),
    ],
)
def test_a_cluster_that_cannot_be_compared_exits_with_status_2(
    manifests: list[dict[str, Any]], forbidden: Collection[str], said: str, run: Run, tmp_path: Path
) -> None:
    with RecordingServer(manifests, forbidden=forbidden) as server:
        ran = run(server.kubeconfig(tmp_path))

    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_the_table_fits_80_columns_and_has_no_control_characters(run: Run, tmp_path: Path) -> None:
    manifests = cluster()
    with RecordingServer(manifests, usage=usage(manifests)) as server:
        out = run(server.kubeconfig(tmp_path)).out

    assert max(map(len, out.splitlines())) <= 80
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f]", out)
    assert "Who manages the nodes" in out
    assert "What protections cost" in out


def test_the_page_is_one_file_that_escapes_names_and_asks_no_host(run: Run, tmp_path: Path) -> None:
    manifests = cluster()
    with RecordingServer(manifests, usage=usage(manifests)) as server:
        out = run(server.kubeconfig(tmp_path), "-o", "html").out

    assert len(out.encode()) < 1_000_000
    assert "<script" not in out
    assert "\x1b" not in out
    assert not re.search(r"(src|href)\s*=|url\(|@import|https?://", out)
    assert "prefers-color-scheme:dark" in out
    assert "@page{size:A4" in out
    parsed = Balanced()
    parsed.feed(out)
    assert parsed.open == []
    charts = [given for tag, given in parsed.seen if tag == "svg" and "aria-hidden" not in given]
    assert len(charts) >= 2
    assert all(each["role"] == "img" and each["aria-label"] for each in charts)
    assert sum(tag == "table" for tag, _ in parsed.seen) > len(charts)


class Balanced(HTMLParser):
    """Collects elements, and checks that each ends where it should."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_escapes_every_text_of_a_report(run: Run, tmp_path: Path) -> None:
    manifests = cluster()
    with RecordingServer(manifests, usage=usage(manifests)) as server:
        data = run(server.kubeconfig(tmp_path), "-o", "json").data

    text = savings_page(poisoned(data))

    assert "<b>" not in text
    assert "&lt;b&gt;" in text


def poisoned(value: Any) -> Any:
    """Return data with markup in every text."""
    if isinstance(value, dict):
        return {key: poisoned(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [poisoned(inner) for inner in value]
    return f"<b>{value}" if isinstance(value, str) else value


def test_assumed_nodepools_can_be_written_and_planned_with(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "pools.yaml"
    with RecordingServer(sparse(6)) as server:
        ran = run(server.kubeconfig(tmp_path), "--write-nodepools", str(file))

    assert ran.status == 0
    written = list(yaml.safe_load_all(file.read_text()))
    assert [each["kind"] for each in written] == ["EC2NodeClass", "NodePool"]
    assert "assumed-1" in ran.out
    assert "status" not in written[0]


def test_the_clusters_own_nodepools_are_not_written(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "pools.yaml"
    with RecordingServer([*sparse(3, labels=karpenter()), nodepool()]) as server:
        ran = run(server.kubeconfig(tmp_path), "--write-nodepools", str(file))

    assert "not written, because the plan uses the cluster's own NodePools" in unwrapped(ran.err)
    assert not file.exists()


def test_without_an_answer_from_ec2_spot_prices_are_estimated_and_that_is_said(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody-has-this-profile")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    spot = {"eks.amazonaws.com/capacityType": "SPOT"}
    with RecordingServer([node("n", labels=spot), pod("p", "n")]) as server:
        path = server.kubeconfig(tmp_path)
        auto = run(path, "-o", "json", "--spot-prices", "auto")
        insists = run(path, "-o", "json", "--spot-prices", "aws")

    assert auto.status == 0
    assert auto.data["prices"]["spot"] == "estimates"
    assert auto.data["now"]["estimatedMonthly"] == auto.data["now"]["monthly"] > 0
    assert (insists.status, insists.out) == (2, "")
    assert "AWS configuration: The config profile (nobody-has-this-profile) could not be found" in insists.err


@pytest.mark.parametrize("seconds", ["-1", "nan"])
def test_seconds_that_are_no_amount_of_time_are_refused(run: Run, tmp_path: Path, seconds: str) -> None:
    with RecordingServer(sparse(3)) as server:
        ran = run(server.kubeconfig(tmp_path), "--seconds", seconds)

    assert ran.status == 2
    assert f"--seconds {seconds}: must be a number that is not negative" in ran.err


def test_without_credentials_spot_prices_of_aws_lead_to_a_login(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "nowhere"))
    with RecordingServer(sparse(3)) as server:
        ran = run(server.kubeconfig(tmp_path), "--spot-prices", "aws")

    assert ran.status == 2
    assert "no AWS credentials found: log in (aws sso login), or set AWS_PROFILE" in ran.err


def test_a_page_that_cannot_be_written_is_an_error_of_one_line(run: Run, tmp_path: Path) -> None:
    with RecordingServer(sparse(3)) as server:
        ran = run(server.kubeconfig(tmp_path), "--write-nodepools", str(tmp_path / "no" / "pools.yaml"))

    assert (ran.status, ran.out) == (2, "")
    assert "cannot be written: No such file or directory" in ran.err


def test_a_selector_splits_the_cluster_into_parts_whose_prices_add_up(run: Run, tmp_path: Path) -> None:
    with RecordingServer(cluster(), usage=[]) as server:
        whole, *parts = [
            run(server.kubeconfig(tmp_path), "-o", "json", *options).data
            for options in ((), ("-l", "karpenter.sh/nodepool"), ("-l", "!karpenter.sh/nodepool"))
        ]

    assert [each["now"]["nodes"] for each in parts] == [3, 4]
    assert sum(each["now"]["hourly"] for each in parts) == pytest.approx(whole["now"]["hourly"])
    assert sum(each["cluster"]["pods"] for each in parts) == whole["cluster"]["pods"]
    assert whole["cluster"]["selector"] == ""
    assert parts[0]["cluster"]["selector"] == "karpenter.sh/nodepool"
    assert "Only the nodes that -l karpenter.sh/nodepool matches" in parts[0]["caveats"][0]
    assert {name for held in parts[0]["kept"] for name in held["names"]} <= {"k-0", "k-1", "k-2"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-l", "team=nobody"), "-l team=nobody: matches none of the cluster's 8 nodes"),
        (("-l", "team in red"), "-l team in red: cannot be read from"),
        (("-l", "a" * 5_000), "-l: the selector has 5,000 characters, of 4,096 allowed"),
        (("-n", "shop"), "-n shop: pods of several namespaces share nodes"),
        (("-n", "shop", "-A"), "-n shop and -A are mutually exclusive"),
    ],
)
def test_a_selection_without_a_meaning_is_refused(
    run: Run, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    with RecordingServer(cluster(), usage=[]) as server:
        reported = run(server.kubeconfig(tmp_path), *options)
    assert (reported.status, reported.out) == (2, "")
    assert message in reported.err
