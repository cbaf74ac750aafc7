"""`nodesmith chaos`: what it does to a running system, and that the system recovers."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from nodesmith.errors import Rejected
from nodesmith.model.karpenter.ownership import NODECLAIM_TAG
from nodesmith_cli.main import app
from nodesmith_cli.simulator.localcommands.commands import place_of
from nodesmith_cli.simulator.localcommands.kubeconfigs import kubeconfig_at
from nodesmith_cli.simulator.localcommands.upcommand import access
from nodesmith_formats.localsystem.reaching import reach
from nodesmith_formats.manifests.manifests import Manifests
from nodesmith_local.runs.running import apply, settle, with_defaults
from nodesmith_local.runs.system import LocalSystem
from tests.patience import eventually, hurried

SPEED, LONGEST_SECONDS = 10.0, 3600.0
CPU = "3"
"""Of each pod, so that pods need nodes of their own."""


@dataclass(frozen=True, slots=True)
class Site:
    """A running system, and the kubeconfig by which commands find it."""

    running: LocalSystem
    kubeconfig: Path

    def chaos(self, *words: str) -> str:
        """Run the command and return what it prints, without what functions print meanwhile: objects on a line."""
        ran = CliRunner().invoke(app, ["chaos", *words, "--kubeconfig", str(self.kubeconfig)])
        if ran.exception is not None and not isinstance(ran.exception, SystemExit):
            raise ran.exception
        assert ran.exit_code == 0
        return "".join(line for line in ran.stdout.splitlines(keepends=True) if not line.startswith('{"'))

    def faults(self, *words: str) -> Mapping[str, Mapping[str, Any]]:
        """Run the command and return the faults that it prints, by name."""
        found, _ = json.JSONDecoder().raw_decode(self.chaos(*words, "-o", "json"))
        return {each["name"]: each for each in found["faults"]}

    def hits(self, name: str) -> int:
        return int(self.faults("status")[name]["hits"])

    def ask_for(self, *names: str) -> None:
        """Create pods."""
        request = {"resources": {"requests": {"cpu": CPU}}}
        for name in names:
            container = {"name": "app", "image": "busybox", **request}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
            self.running.first.objects.create("pods", {**pod, "spec": {"containers": [container]}})

    def bound(self, *names: str) -> int:
        """Return how many of these pods have a node."""
        pods = self.running.first.objects.list("pods")
        return sum(p["metadata"]["name"] in names and bool(p["spec"].get("nodeName")) for p in pods)

    def await_hits(self, *names: str) -> None:
        eventually(lambda: all(map(self.hits, names)), f"calls meet {names}", tell=self.log)

    def await_recovery(self) -> Mapping[str, Mapping[str, Any]]:
        """Wait until the system has recovered from all faults, and return them."""

        def recovered() -> bool:
            return {each["state"] for each in self.faults("status").values()} == {"recovered"}

        eventually(recovered, "it has recovered", 120, tell=lambda: str(self.faults("status")))
        return self.faults("status")

    def log(self) -> str:
        return self.running.log.read_text()[-3000:]

    def instances(self) -> list[str]:
        """Return the NodeClaim of each instance that is alive."""
        reservations = self.running.aws.client("ec2").describe_instances()["Reservations"]
        return [
            next(tag["Value"] for tag in i["Tags"] if tag["Key"] == NODECLAIM_TAG)
            for each in reservations
            for i in each["Instances"]
            if i["State"]["Name"] in ("pending", "running")
        ]

    def assert_nothing_is_doubled(self) -> None:
        """Assert that each claim has one instance and one node, and each instance a claim."""
        objects = self.running.first.objects
        claims = {each["metadata"]["name"] for each in objects.list("nodeclaims")}
        assert Counter(self.instances()) == Counter(claims)
        assert len(objects.list("nodes")) == len(claims)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    manifests = with_defaults(Manifests())
    folder = tmp_path_factory.mktemp("local")
    with (
        LocalSystem(place_of(manifests, "", hurried(SPEED)), folder / "state") as running,
        kubeconfig_at(folder / "config", access(running)) as kubeconfig,
    ):
        apply(running.first, manifests.documents)
        nothing_moves = {"spec": {"disruption": {"budgets": [{"nodes": "0"}]}}}
        running.first.objects.patch("nodepools", "default", nothing_moves)
        assert settle(running.first, LONGEST_SECONDS) == ""
        yield Site(running, kubeconfig)


def test_pods_get_nodes_once_three_services_are_well_again_and_nothing_is_doubled(site: Site) -> None:
    site.chaos("start", "throttled", "--service", "ec2", "--share", "1", "--for", "1h")
    site.chaos("start", "errors", "--service", "dynamodb", "--for", "1h")
    site.chaos("start", "slow", "--service", "apiserver", "--for", "20s")
    site.ask_for("a-1", "a-2")
    site.await_hits("dynamodb-errors")
    assert list(site.faults("stop", "dynamodb-errors")) == ["dynamodb-errors"]
    site.await_hits("ec2-throttled", "apiserver-slow")
    assert site.bound("a-1", "a-2") == 0
    site.chaos("stop", "ec2-throttled")

    found = site.await_recovery()

    assert site.bound("a-1", "a-2") == 2
    site.assert_nothing_is_doubled()
    assert all(each["recoverySeconds"] >= 0 and each["hits"] > 0 for each in found.values())


def test_launches_that_ec2_never_answers_are_not_repeated(site: Site) -> None:
    before = len(site.instances())
    site.chaos("start", "late", "--service", "ec2", "--function", "provisioning", "--for", "1h")
    site.ask_for("b-1", "b-2")
    eventually(lambda: len(site.instances()) > before, "EC2 launches instances", tell=site.log)
    assert site.hits("ec2-late") > 0
    site.chaos("stop", "ec2-late")

    site.await_recovery()

    assert site.bound("b-1", "b-2") == 2
    site.assert_nothing_is_doubled()


def test_pods_wait_while_lambda_has_no_concurrency_and_get_nodes_afterwards(site: Site) -> None:
    site.chaos("start", "concurrency", "--for", "1h")
    site.chaos("start", "poisoned", "--for", "1h")
    site.ask_for("c-1")
    site.await_hits("lambda-concurrency", "lambda-poisoned")
    claims = len(site.running.first.objects.list("nodeclaims"))
    assert len(site.faults("stop", "--all")) == 2

    site.await_recovery()

    assert (site.bound("c-1"), len(site.running.first.objects.list("nodeclaims"))) == (1, claims + 1)
    site.assert_nothing_is_doubled()


def test_a_fault_without_services_or_functions_names_them_all_and_says_how_to_watch_it(site: Site) -> None:
    shown = site.chaos("start", "errors", "--service", "scheduler,events", "--function", "repair")
    site.chaos("stop", "--all")
    first, *rows, hint = shown.splitlines()
    assert first.split()[:4] == ["NAME", "STATE", "LEFT", "HITS"]
    assert [row.split()[:2] for row in rows] == [["scheduler-errors", "active"], ["events-errors", "active"]]
    assert all(row.endswith("repair") for row in rows)
    assert f"nodesmith chaos status --watch --kubeconfig {site.kubeconfig}" in hint


def test_a_fault_that_is_active_cannot_be_started_and_one_that_is_not_cannot_be_stopped(site: Site) -> None:
    site.chaos("start", "errors", "--service", "scheduler", "--function", "repair")
    with pytest.raises(Rejected, match="scheduler-errors is active already"):
        site.chaos("start", "errors", "--service", "scheduler")
    with pytest.raises(Rejected, match="did you mean 'scheduler-errors'"):
        site.chaos("stop", "scheduler-error")
    site.chaos("stop", "--all")
    with pytest.raises(Rejected, match="no fault 'scheduler-errors' is active"):
        site.chaos("stop", "scheduler-errors")
    assert "no fault is active" in site.chaos("stop", "--all")


def test_a_fault_that_hit_nothing_is_said_to_have_hit_nothing(site: Site) -> None:
    site.chaos("start", "errors", "--service", "sqs", "--function", "shadow")
    assert "sqs-errors hit nothing" not in site.chaos("status")
    assert "sqs-errors hit nothing: let it last longer" in site.chaos("stop", "--all")


@pytest.mark.parametrize("words", [(), ("x", "--all")])
def test_stop_takes_one_name_or_all(site: Site, words: Sequence[str]) -> None:
    with pytest.raises(Rejected, match=r"name one fault.*or use --all"):
        site.chaos("stop", *words)


def test_requests_that_cannot_be_read_are_refused_and_start_nothing(site: Site) -> None:
    url = reach(site.kubeconfig).chaos_url

    def started() -> Mapping[str, str]:
        return {name: each["startedAt"] for name, each in site.faults("status").items()}

    before = started()

    def refused(body: bytes, kind: str = "application/json", at: str = url) -> str:
        request = urllib.request.Request(at, body, {"Content-Type": kind})  # noqa: S310
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(request, timeout=60)  # noqa: S310
        return str(json.load(error.value)["message"])

    assert "cannot be read" in refused(b"{")
    assert "cannot be read" in refused(b"[]")
    assert "no fault is called" in refused(b'{"kind": "x", "services": [], "functions": []}')
    assert "expected application/json" in refused(b'{"kind": "slow"}', "text/plain")
    assert "there is only /faults" in refused(b"{}", at=url.replace("faults", "other"))
    assert started() == before


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda cluster: cluster.pop("extensions"), "`nodesmith local up` did not create"),
        (lambda cluster: cluster["extensions"][0]["extension"].pop("chaos"), "another version"),
        (
            lambda cluster: cluster["extensions"][0]["extension"].update(chaos="http://127.0.0.1:9/faults"),
            "no local system runs at its address any more",
        ),
    ],
)
def test_only_a_system_of_local_up_that_runs_is_injured(
    site: Site, tmp_path: Path, change: Change, why: str
) -> None:
    config = yaml.safe_load(site.kubeconfig.read_text())
    change(config["clusters"][0]["cluster"])
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    with pytest.raises(Rejected, match=why):
        Site(site.running, tmp_path / "config").chaos("start", "slow")


def test_without_a_running_system_the_error_says_what_to_start(site: Site, tmp_path: Path) -> None:
    with pytest.raises(Rejected, match=r"no local system runs: .*start `nodesmith local up`"):
        Site(site.running, tmp_path / "config").chaos("status")


def test_the_list_names_every_fault_with_its_services() -> None:
    shown = CliRunner().invoke(app, ["chaos", "list"]).stdout
    listed = json.loads(CliRunner().invoke(app, ["chaos", "list", "-o", "json"]).stdout)["faults"]
    assert {"throttled", "concurrency", "poisoned"} <= {each["name"] for each in listed}
    assert all(each["name"] in shown and each["does"] in shown and each["shows"] in shown for each in listed)
