"""`nodesmith check-cluster` and `nodesmith uninstall` on an in-memory API server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nodesmith.adapters.kubernetes.apiserver import ApiServer, connect
from nodesmith.adapters.kubernetes.cluster import ApiCluster
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.labels import NODECLASS_FINALIZER, TERMINATION_FINALIZER
from nodesmith.model.karpenter.nodeclaimobjects import manifest
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith_cli.sharing.checkcommand import check_cluster
from nodesmith_cli.sharing.ownership import CRDS, read_ownership
from nodesmith_cli.sharing.removal import LAUNCH_LOOKS, Settings
from nodesmith_cli.sharing.uninstallcommand import uninstall
from nodesmith_formats.crds import custom_resource_definitions
from nodesmith_local.apiserver import ApiServer as InMemory
from tests import builders
from tests.contract.worlds import lease
from tests.objects import foreign

Manifest = dict[str, Any]
NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
PATHS = {
    "NodePool": "/apis/karpenter.sh/v1/nodepools",
    "NodeClaim": "/apis/karpenter.sh/v1/nodeclaims",
    "EC2NodeClass": "/apis/karpenter.k8s.aws/v1/ec2nodeclasses",
    "Node": "/api/v1/nodes",
    "Namespace": "/api/v1/namespaces",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "CustomResourceDefinition": CRDS,
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/default/leases",
}
LABELS = {"app.kubernetes.io/name": "nodesmith"}


@dataclass(slots=True)
class Yard:
    """An API server with nodesmith installed. `functions` simulates the functions each time the command waits."""

    server: ApiServer
    now: datetime = NOW
    functions: Callable[[], None] = lambda: None
    waits: int = 0
    removed_before: list[str] = field(default_factory=list)
    """The parts of the installation that were missing while nodes still existed."""

    def put(self, kind: str, made: Manifest) -> None:
        body = {**deepcopy(made), "metadata": {k: v for k, v in made["metadata"].items() if k != "uid"}}
        self.server.create(PATHS[kind], body)
        if "status" in made:
            self.server.patch(f"{PATHS[kind]}/{made['metadata']['name']}/status", {"status": made["status"]})

    def names(self, kind: str) -> list[str]:
        return sorted(
            str(each["metadata"]["name"]) for page in self.server.pages(PATHS[kind]) for each in page["items"]
        )

    def versions(self, kind: str) -> dict[str, str]:
        """Return the version of the last write to each object."""
        pages = self.server.pages(PATHS[kind])
        return {
            e["metadata"]["name"]: e["metadata"]["resourceVersion"] for page in pages for e in page["items"]
        }

    def sleep(self, seconds: float) -> None:
        self.waits += 1
        self.now += timedelta(seconds=seconds)
        if "nodesmith-writer" not in self.names("ClusterRole"):
            self.removed_before.append("nodesmith-writer")
        self.functions()

    def end_nodes(self) -> None:
        """Terminate deleted NodeClaims as the termination function does, one at a time."""
        cluster = ApiCluster(self.server, lambda: self.now)
        survey = read_ownership(self.server, self.now)
        for claim in survey.nodeclaims:
            if claim["metadata"].get("deletionTimestamp"):
                cluster.release_node(claim["status"]["nodeName"], claim["status"]["providerID"])
                cluster.delete_nodeclaim(claim["metadata"]["name"])
                return

    def run(self, *, timeout: timedelta = timedelta(minutes=5), **options: Any) -> int:
        settings = Settings(timeout, options.pop("lift_finalizers", False))
        how: dict[str, Any] = {"output": "json", "dry_run": False, "yes": True, **options}
        return uninstall(
            self.server,
            settings,
            clock=lambda: self.now,
            sleep=self.sleep,
            **how,
        )


@pytest.fixture
def yard() -> Iterator[Yard]:
    """Return a cluster with one of our NodePools, two nodes, and everything that the manifests install."""
    with InMemory(crds=custom_resource_definitions(), now=lambda: NOW) as running:
        made = Yard(ApiServer(connect(running.url, "", lambda: "anybody")))
        made.put("NodePool", builders.nodepool_manifest("default"))
        made.put("EC2NodeClass", builders.nodeclass_manifest())
        for number in (1, 2):
            add_ours(made, f"default-{number}", f"i-ours{number}")
        made.put("Namespace", {"metadata": {"name": "nodesmith", "labels": LABELS}})
        for kind in ("ClusterRole", "ClusterRoleBinding"):
            rights: dict[str, Any] = {
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "nodesmith-writer",
                }
            }
            body = {"metadata": {"name": "nodesmith-writer", "labels": LABELS}}
            made.put(kind, {**body, **(rights if kind == "ClusterRoleBinding" else {"rules": []})})
        made.functions = made.end_nodes
        yield made


def add_ours(yard: Yard, name: str, instance: str) -> None:
    pool = yard.server.get(f"{PATHS['NodePool']}/default")
    assert pool is not None
    claim = builders.claim(
        name,
        phase=Phase.INITIALIZED,
        decision="d",
        nodepool_uid=pool["metadata"]["uid"],
        node_name=instance,
        provider_id=foreign.provider_id(instance),
    )
    yard.put("NodeClaim", manifest(claim))
    add_node(
        yard, instance, {"karpenter.sh/nodepool": "default", "karpenter.k8s.aws/ec2nodeclass": "default"}
    )


def add_node(yard: Yard, instance: str, labels: dict[str, str]) -> None:
    about = {"name": instance, "labels": labels, "finalizers": [TERMINATION_FINALIZER]}
    yard.put("Node", {"metadata": about, "spec": {"providerID": foreign.provider_id(instance)}})


def add_auto_mode(yard: Yard) -> None:
    for name in foreign.BUILT_IN:
        yard.put("NodePool", foreign.auto_mode_nodepool(name))
    pool = yard.server.get(f"{PATHS['NodePool']}/system")
    assert pool is not None
    claim = foreign.nodeclaim("theirs", "system", instance="i-auto1")
    claim["metadata"]["ownerReferences"][0]["uid"] = pool["metadata"]["uid"]
    yard.put("NodeClaim", claim)
    yard.put("Node", foreign.node("i-auto1", "system"))


def add_karpenters(yard: Yard) -> None:
    """Add a node that Karpenter launched from a NodePool that nodesmith now serves."""
    pool = yard.server.get(f"{PATHS['NodePool']}/default")
    assert pool is not None
    claim = foreign.karpenters_nodeclaim("karpenters", instance="i-karpenter1")
    claim["metadata"]["ownerReferences"][0]["uid"] = pool["metadata"]["uid"]
    yard.put("NodeClaim", claim)
    add_node(
        yard,
        "i-karpenter1",
        {"karpenter.sh/nodepool": "default", "karpenter.k8s.aws/ec2nodeclass": "default"},
    )


def test_everything_is_removed_and_rbac_only_after_the_last_node(
    yard: Yard, capsys: pytest.CaptureFixture[str]
) -> None:
    assert yard.run() == 0
    said = json.loads(capsys.readouterr().out)
    assert said["done"]
    assert said["left"] == said["kept"] == []
    assert yard.waits == LAUNCH_LOOKS
    assert yard.removed_before == []
    for kind in ("Node", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"):
        assert yard.names(kind) == [], kind
    assert "nodesmith" not in yard.names("Namespace")
    assert yard.run() == 0, "the second run has nothing to do"


def test_uninstall_shows_what_it_waits_for(yard: Yard, capsys: pytest.CaptureFixture[str]) -> None:
    waits = {
        "type": "Drained",
        "status": "Unknown",
        "reason": "Draining",
        "message": "2 pods are still there",
    }
    waits["lastTransitionTime"] = "2026-11-21T08:00:00Z"
    yard.server.patch(f"{PATHS['NodeClaim']}/default-1/status", {"status": {"conditions": [waits]}})
    yard.run()
    reported = capsys.readouterr().err
    assert (
        "waiting for NodeClaim/default-1 (2 pods are still there); NodeClaim/default-2; Node/i-ours1"
        in reported
    )


def test_objects_of_auto_mode_are_not_written_and_the_shared_crds_stay(
    yard: Yard, capsys: pytest.CaptureFixture[str]
) -> None:
    add_auto_mode(yard)
    before = {kind: yard.versions(kind) for kind in ("NodePool", "NodeClaim", "Node")}
    assert yard.run() == 0
    theirs = {"NodePool": set(foreign.BUILT_IN), "NodeClaim": {"theirs"}, "Node": {"i-auto1"}}
    for kind, names in theirs.items():
        assert yard.versions(kind) == {name: before[kind][name] for name in names}
    assert yard.names("CustomResourceDefinition") == ["nodeclaims.karpenter.sh", "nodepools.karpenter.sh"]
    kept = {each["name"] for each in json.loads(capsys.readouterr().out)["kept"]}
    assert {"NodePool/system", "NodeClaim/theirs", "CustomResourceDefinition/nodepools.karpenter.sh"} <= kept


def test_nodes_of_karpenter_stay_while_their_nodepool_is_deleted(yard: Yard) -> None:
    add_karpenters(yard)
    assert yard.run() == 0
    assert yard.names("NodePool") == []
    assert (yard.names("NodeClaim"), yard.names("Node")) == (["karpenters"], ["i-karpenter1"])
    claim = yard.server.get(f"{PATHS['NodeClaim']}/karpenters")
    assert claim is not None
    assert "deletionTimestamp" not in claim["metadata"]
    assert yard.names("EC2NodeClass") == ["default"], "a NodeClaim references it"


def test_nothing_is_deleted_while_karpenter_runs(yard: Yard, capsys: pytest.CaptureFixture[str]) -> None:
    yard.put("Lease", lease(NOW))
    with pytest.raises(Rejected, match=r"a Karpenter controller is running .* scale Karpenter to zero"):
        yard.run()
    assert yard.names("NodePool") == ["default"]
    assert yard.run(dry_run=True) == 1
    assert json.loads(capsys.readouterr().out)["refused"]


def test_a_dry_run_names_everything_and_deletes_nothing(
    yard: Yard, capsys: pytest.CaptureFixture[str]
) -> None:
    add_auto_mode(yard)
    before = {kind: yard.versions(kind) for kind in PATHS}
    assert yard.run(dry_run=True) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["delete"] == [
        "NodePool/default",
        "NodeClaim/default-1",
        "NodeClaim/default-2",
        "EC2NodeClass/default",
        "Node/i-ours1",
        "Node/i-ours2",
    ]
    assert {kind: yard.versions(kind) for kind in PATHS} == before


def test_after_the_timeout_the_rest_is_listed_rbac_is_kept_and_a_new_run_continues(
    yard: Yard, capsys: pytest.CaptureFixture[str]
) -> None:
    yard.functions = lambda: None
    assert yard.run(timeout=timedelta(seconds=30)) == 1
    said = json.loads(capsys.readouterr().out)
    assert not said["done"]
    assert [f"{each['kind']}/{each['name']}" for each in said["left"]] == [
        "NodeClaim/default-1",
        "NodeClaim/default-2",
        "Node/i-ours1",
        "Node/i-ours2",
    ]
    assert yard.names("ClusterRole") == ["nodesmith-writer"]
    yard.functions = yard.end_nodes
    assert yard.run() == 0


def test_an_interrupted_uninstall_says_so_and_can_be_run_again(
    yard: Yard, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    yard.functions = interrupt
    assert yard.run() == 130
    assert "run the command again" in capsys.readouterr().err
    yard.functions = yard.end_nodes
    assert yard.run() == 0


def test_finalizers_are_removed_only_on_request_and_only_from_ours(
    yard: Yard, capsys: pytest.CaptureFixture[str]
) -> None:
    add_auto_mode(yard)
    add_karpenters(yard)
    yard.functions = lambda: None
    assert yard.run(timeout=timedelta(seconds=10), lift_finalizers=True) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["instances"] == [foreign.provider_id("i-ours1"), foreign.provider_id("i-ours2")]
    assert yard.names("Node") == ["i-auto1", "i-karpenter1"]
    assert yard.names("NodeClaim") == ["karpenters", "theirs"]


def test_the_finalizer_of_karpenter_is_removed_from_nodeclasses(yard: Yard) -> None:
    old = builders.nodeclass_manifest("old")
    old["metadata"]["finalizers"] = [NODECLASS_FINALIZER]
    yard.put("EC2NodeClass", old)
    assert yard.run() == 0
    assert "ec2nodeclasses.karpenter.k8s.aws" not in yard.names("CustomResourceDefinition")


def launch_late_and_end(yard: Yard, after_waits: int, phase: Phase) -> None:
    """Do what functions do: launch one more node after so many waits, and end all nodes that are being deleted."""
    if yard.waits == after_waits:
        made = manifest(builders.claim("late", phase=phase, decision="d", node_name="i-late"))
        made["status"]["providerID"] = foreign.provider_id("i-late")
        yard.put("NodeClaim", made)
    yard.end_nodes()


def test_a_node_launched_at_the_last_moment_is_removed_as_well(yard: Yard) -> None:
    yard.functions = lambda: launch_late_and_end(yard, 1, Phase.INITIALIZED)
    assert yard.run() == 0


def test_a_node_that_is_being_launched_when_its_nodepool_is_deleted_is_removed_as_well(yard: Yard) -> None:
    """Its NodeClaim is written some seconds after EC2 was called. Nothing would end it once RBAC is gone."""
    for kind in ("NodeClaim", "Node"):
        for name in yard.names(kind):
            yard.server.patch(f"{PATHS[kind]}/{name}", {"metadata": {"finalizers": None}})
            yard.server.delete(f"{PATHS[kind]}/{name}", "")

    yard.functions = lambda: launch_late_and_end(yard, 3, Phase.LAUNCHED)
    assert yard.run() == 0
    assert yard.waits > 3
    assert yard.removed_before == []
    assert yard.names("CustomResourceDefinition") == []

    yard.waits = 0
    assert yard.run() == 0
    assert yard.waits == 0, "without NodePools nothing is being launched"


def test_json_output_without_yes_is_refused(yard: Yard) -> None:
    with pytest.raises(Rejected, match="--yes"):
        yard.run(yes=False)
    assert yard.names("NodePool") == ["default"]


def check(yard: Yard, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, list[tuple[str, str]]]:
    status = check_cluster(yard.server, "json", NOW)
    said = json.loads(capsys.readouterr().out)
    return status, said["overlay"], [(each["check"], each["severity"]) for each in said["findings"]]


def test_a_cluster_without_other_software_gets_the_whole_folder(
    yard: Yard, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(yard, capsys) == (0, "forwarder/", [])


def test_a_cluster_with_auto_mode_gets_the_overlay_without_the_shared_crds(
    yard: Yard, capsys: pytest.CaptureFixture[str]
) -> None:
    add_auto_mode(yard)
    found = [("shared-crds", "warning"), *[("foreign-nodepool", "info")] * 2]
    assert check(yard, capsys) == (0, "overlays/shared-crds/", found)


def test_crds_managed_by_eks_are_detected_without_nodepools(
    yard: Yard, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "nodeclasses.eks.amazonaws.com"
    names = {
        "kind": "NodeClass",
        "plural": "nodeclasses",
        "singular": "nodeclass",
        "listKind": "NodeClassList",
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object"}},
    }
    spec = {"group": "eks.amazonaws.com", "names": names, "scope": "Cluster", "versions": [version]}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
    }
    yard.put("CustomResourceDefinition", {**body, "spec": spec})
    assert check(yard, capsys) == (0, "overlays/shared-crds/", [("shared-crds", "warning")])


def test_a_running_karpenter_and_its_nodeclaims_are_warnings_that_name_the_command_to_adopt(
    yard: Yard, capsys: pytest.CaptureFixture[str]
) -> None:
    add_karpenters(yard)
    yard.put("Lease", lease(NOW))
    found = [("karpenter-controller", "warning"), ("karpenter-nodeclaims", "warning")]
    assert check(yard, capsys) == (0, "forwarder/", found)
    check_cluster(yard.server, "table", NOW)
    assert "nodesmith adopt" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ("name", "NodePool/default\n"),
        (
            "yaml",
            "$schema: https://nodesmith.dev/schemas/removal-plan.schema.json\ndelete:\n- NodePool/default\n",
        ),
        ("jsonpath={.delete[0]}", "NodePool/default"),
    ],
)
def test_what_would_be_deleted_is_printed_for_scripts_as_well(
    yard: Yard, capsys: pytest.CaptureFixture[str], output: str, shown: str
) -> None:
    assert yard.run(output=output, dry_run=True) == 0
    assert capsys.readouterr().out.startswith(shown)
