"""The steps of connect, derived from observed values: in order, and none if nothing is missing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from nodesmith.errors import Rejected
from nodesmith_cli.connecting.applying import State
from nodesmith_cli.connecting.checks.problems import problems
from nodesmith_cli.connecting.observed import (
    Account,
    Association,
    Cluster,
    ClusterReading,
    Entry,
    NodeRole,
    Object,
    RegionStack,
    Tagged,
)
from nodesmith_cli.connecting.optionchecks import parsed_settings
from nodesmith_cli.connecting.request import (
    NODE_POLICIES,
    ConnectRequest,
    function_entries,
    registration,
)
from nodesmith_cli.connecting.steps.actions import (
    Apply,
    AttachPolicies,
    ChangeEntry,
    InstallAgent,
    MakeEntry,
    MakeNodeRole,
    Register,
    ReplaceEntry,
    RestartForwarder,
    SetMode,
    Tag,
)
from nodesmith_cli.connecting.steps.connect import rows
from nodesmith_cli.sharing.ownership import ClusterOwnership

WANTED = ConnectRequest("web", image="forwarder:1")
CLUSTER = Cluster(
    "web",
    "ACTIVE",
    "1.34",
    "API",
    "vpc-0123456789abcdef0",
    "https://api",
    "",
    subnets=("subnet-1",),
    security_group="sg-1",
)
FORWARDER = "arn:aws:iam::1:role/nodesmith-forwarder-us-east-1"
STACK = RegionStack("0.1.0", "bucket", "https://sqs/1", FORWARDER, ("shared",))
NODES = "KarpenterNodeRole-web"
EMPTY = ClusterReading(ClusterOwnership({}))


def bare(**changes: Any) -> Account:
    """Return an account with a deployed stack, but nothing of the cluster."""
    made = Account(
        "1",
        "aws",
        "us-east-1",
        "arn:aws:iam::1:user/me",
        CLUSTER,
        stack=STACK,
        subnets=(Tagged("subnet-1"), Tagged("subnet-2")),
        groups=(Tagged("sg-1"),),
    )
    return replace(made, **changes)


def whole(**changes: Any) -> Account:
    """Return an account in which nothing is missing."""
    account = bare()
    entries = {arn: Entry("STANDARD", user) for arn, user in function_entries(account, "").items()}
    entries[account.role_arn(NODES)] = Entry("EC2_LINUX")
    arns = frozenset(f"arn:aws:iam::aws:policy/{each}" for each in NODE_POLICIES)
    made = replace(
        account,
        roles=frozenset(arn.rpartition("/")[2] for arn in function_entries(account, "")),
        entries=entries,
        association=Association("a-1", FORWARDER),
        has_agent=True,
        subnets=(Tagged("subnet-1", "web"),),
        groups=(Tagged("sg-1", "web"),),
        node_roles={NODES: NodeRole(NODES, arns)},
        parameter=registration(WANTED, account).to_json(),
    )
    return replace(made, **changes)


def actions(account: Account, wanted: ConnectRequest = WANTED, inside: ClusterReading = EMPTY) -> list[Any]:
    return [row.action for row in rows(wanted, account, inside) if row.action is not None]


def test_nothing_is_done_where_nothing_is_missing() -> None:
    assert actions(whole()) == []


def test_an_empty_account_gets_everything_and_the_registration_last() -> None:
    done = actions(bare(has_spot_role=False))
    kinds = list(dict.fromkeys(type(each).__name__ for each in done))
    assert kinds == [
        "InstallAgent",
        "MakeSpotRole",
        "Tag",
        "MakeNodeRole",
        "MakeEntry",
        "Associate",
        "Register",
    ]
    assert done[0] == InstallAgent()
    assert MakeNodeRole(NODES) in done
    assert [each.ids for each in done if isinstance(each, Tag)] == [("subnet-1",), ("sg-1",)]
    assert len([each for each in done if isinstance(each, MakeEntry)]) == 8


def test_auto_mode_includes_the_agent() -> None:
    account = bare(cluster=replace(CLUSTER, is_auto_mode=True))
    assert InstallAgent() not in actions(account)


def test_the_mode_is_switched_first() -> None:
    account = bare(cluster=replace(CLUSTER, mode="CONFIG_MAP"))
    assert actions(account, replace(WANTED, is_to_switch_mode=True))[0] == SetMode()


def test_an_entry_with_a_wrong_user_or_group_is_changed_and_one_of_a_wrong_type_is_replaced() -> None:
    account = whole()
    lifecycle = account.role_arn("nodesmith-lifecycle-us-east-1")
    user = "nodesmith:writer:{{SessionName}}"
    for entry, action in (
        (Entry("STANDARD", "somebody"), ChangeEntry(lifecycle, user)),
        (Entry("STANDARD", user, ("system:masters",)), ChangeEntry(lifecycle, user)),
        (Entry("EC2_LINUX"), ReplaceEntry(lifecycle, "STANDARD", user)),
    ):
        assert actions(replace(account, entries={**account.entries, lifecycle: entry})) == [action]


def test_a_node_role_keeps_the_entry_with_which_windows_nodes_join_too() -> None:
    account = whole()
    role = account.role_arn(NODES)
    for kind, done in (("EC2_WINDOWS", []), ("STANDARD", [ReplaceEntry(role, "EC2_LINUX", "")])):
        assert actions(replace(account, entries={**account.entries, role: Entry(kind)})) == done


def test_an_entry_that_is_older_than_its_role_is_made_again() -> None:
    account = whole()
    (lifecycle,) = (arn for arn in account.entries if "lifecycle" in arn)
    role = account.role_arn(NODES)
    stale = {each: replace(account.entries[each], is_stale=True) for each in (lifecycle, role)}
    done = actions(replace(account, entries={**account.entries, **stale}))
    assert sorted(done, key=str) == sorted(
        [
            ReplaceEntry(lifecycle, "STANDARD", "nodesmith:writer:{{SessionName}}"),
            ReplaceEntry(role, "EC2_LINUX", ""),
        ],
        key=str,
    )
    windows = {**account.entries, role: Entry("EC2_WINDOWS", is_stale=True)}
    assert actions(replace(account, entries=windows)) == [ReplaceEntry(role, "EC2_WINDOWS", "")]


def test_missing_policies_are_attached_to_the_node_role() -> None:
    cni = "arn:aws:iam::aws:policy/AmazonEKS_CNI_Policy"
    account = whole(node_roles={NODES: NodeRole(NODES, frozenset({cni}))})
    (action,) = actions(account)
    assert isinstance(action, AttachPolicies)
    assert cni not in action.policies
    assert len(action.policies) == 3


def test_a_custom_node_role_is_not_changed_and_gets_an_access_entry() -> None:
    account = whole(
        node_roles={
            "shared": NodeRole("shared"),
            NODES: NodeRole(NODES, frozenset(["AmazonEKSWorkerNodePolicy"])),
        }
    )
    done = actions(account, replace(WANTED, node_role="shared"))
    register = done[-1]
    assert isinstance(register, Register)
    assert json.loads(register.text)["nodeRoles"] == ["shared", NODES]
    assert done[:-1] == [MakeEntry(account.role_arn("shared"), "EC2_LINUX")]


def test_an_unreadable_registration_is_rewritten() -> None:
    (action,) = actions(whole(parameter="{"))
    assert action == Register(registration(WANTED, bare()).to_json(), is_new=False)


def test_subnets_tagged_for_another_cluster_are_not_tagged() -> None:
    account = whole(subnets=(Tagged("subnet-1", "other"),))
    assert actions(account) == []
    (found,) = problems(WANTED, account)
    assert (found.check, found.severity) == ("discovery", "warning")


def test_only_what_is_missing_or_different_is_applied() -> None:
    def made(kind: str, state: State, leave: str = "") -> Object:
        return Object({"kind": kind, "metadata": {"name": kind.lower()}}, state, leave)

    crd = "CustomResourceDefinition"
    objects = (
        made(crd, State.PRESENT),
        made(crd, State.DIFFERENT, "is newer than the one in this release"),
        made("ClusterRole", State.DIFFERENT),
        made("ValidatingAdmissionPolicy", State.UNKNOWN_KIND),
        made("ConfigMap", State.MISSING),
    )
    applied = [
        each
        for each in actions(whole(), inside=ClusterReading(ClusterOwnership({}), objects))
        if isinstance(each, Apply)
    ]
    assert [[m["kind"] for m in each.manifests] for each in applied] == [["ClusterRole"], ["ConfigMap"]]


def test_a_pod_without_credentials_is_replaced() -> None:
    inside = ClusterReading(ClusterOwnership({}), without_credentials=("nodesmith-forwarder-1",))
    assert actions(whole(), inside=inside) == [RestartForwarder()]


# Problems


@pytest.mark.parametrize(
    ("changes", "check", "words"),
    [
        ({"status": "CREATING"}, "status", "is CREATING"),
        ({"version": "1.24"}, "version", "1.25 is the oldest"),
        ({"version": ""}, "version", "an unknown version"),
        ({"name": "x"}, "name", "2 to 64"),
        ({"mode": "CONFIG_MAP"}, "authentication-mode", "CONFIG_MAP"),
        ({"is_public": False}, "endpoint", "is private"),
        ({"public_cidrs": ("10.0.0.0/8",)}, "endpoint", "public for 10.0.0.0/8 only"),
    ],
)
def test_a_missing_prerequisite_is_a_problem(changes: dict[str, Any], check: str, words: str) -> None:
    found = [
        each for each in problems(WANTED, whole(cluster=replace(CLUSTER, **changes))) if each.check == check
    ]
    assert len(found) == 1
    assert found[0].severity == "error"
    assert words in found[0].found
    assert found[0].remedy


def test_an_endpoint_open_to_all_addresses_is_no_problem() -> None:
    cluster = replace(CLUSTER, public_cidrs=("10.0.0.0/8", "0.0.0.0/0"))
    assert list(problems(WANTED, whole(cluster=cluster))) == []


@pytest.mark.parametrize(
    ("stack", "severity", "words"),
    [
        (None, "error", "is not deployed"),
        (replace(STACK, table_name=""), "error", "has no output TableName"),
        (replace(STACK, version="0.0.1"), "warning", "has version 0.0.1"),
    ],
)
def test_a_missing_or_outdated_stack_is_reported(
    stack: RegionStack | None, severity: str, words: str
) -> None:
    (found,) = [each for each in problems(WANTED, whole(stack=stack)) if each.check == "stack"]
    assert found.severity == severity
    assert words in found.found
    assert found.remedy.endswith("deploy nodesmith-us-east-1")


def test_a_node_role_that_the_stack_does_not_list_is_a_warning() -> None:
    roles = {"mine": NodeRole("mine"), NODES: NodeRole(NODES)}
    account = whole(node_roles=roles, stack=replace(STACK, node_roles=None))
    (found,) = problems(replace(WANTED, node_role="mine"), account)
    assert (found.check, found.severity) == ("node-role", "warning")


def test_a_node_role_that_ec2_cannot_assume_is_a_problem() -> None:
    account = whole(node_roles={NODES: NodeRole(NODES, is_trusting_ec2=False)})
    (found,) = problems(WANTED, account)
    assert found.found == "does not trust ec2.amazonaws.com"


def test_a_cluster_whose_node_role_would_have_too_long_a_name_needs_another_one() -> None:
    name = "w" * 47  # with KarpenterNodeRole- in front, one more than the 64 characters of IAM
    account = whole(cluster=replace(CLUSTER, name=name), node_roles={}, parameter=None)
    (found,) = (
        each for each in problems(replace(WANTED, cluster=name), account) if each.check == "node-role"
    )
    assert found.severity == "error"
    assert "65 characters" in found.found
    assert "--node-role" in found.remedy
    shared = whole(cluster=account.cluster, node_roles={"shared": NodeRole("shared")}, parameter=None)
    own = replace(WANTED, cluster=name, node_role="shared")
    assert not [each for each in problems(own, shared) if each.check == "node-role"]


def test_settings_that_no_parameter_holds_are_reported() -> None:
    wanted = replace(WANTED, settings={"CLUSTER_CA_BUNDLE": "x" * 4096})
    (found,) = problems(wanted, whole())
    assert (found.check, found.severity) == ("registration", "error")
    assert "4,096 bytes" in found.found


@pytest.mark.parametrize("kind", ["EC2", "HYBRID_LINUX", "FARGATE_LINUX"])
def test_a_role_with_which_other_machines_join_keeps_its_entry(kind: str) -> None:
    account = whole()
    account = replace(account, entries={**account.entries, account.role_arn(NODES): Entry(kind)})
    (found,) = problems(WANTED, account)
    assert (found.check, found.severity) == ("node-role", "error")
    assert f"type {kind}" in found.found
    assert "another role" in found.remedy


def test_a_role_with_a_path_must_be_named_with_it() -> None:
    account = whole(node_roles={NODES: NodeRole(NODES, path="/eks/")})
    (found,) = problems(WANTED, account)
    assert (found.check, found.severity) == ("node-role", "error")
    assert f"eks/{NODES}" in found.remedy
    named = f"eks/{NODES}"
    known = whole(
        node_roles={named: NodeRole(named, path="/eks/")}, stack=replace(STACK, node_roles=(named,))
    )
    registered = registration(replace(WANTED, node_role=named), bare()).to_json()
    own = replace(known, parameter=registered)
    assert not [each for each in problems(replace(WANTED, node_role=named), own) if each.severity == "error"]


def test_every_invalid_setting_is_reported() -> None:
    with pytest.raises(Rejected) as caught:
        parsed_settings(["RESERVED_ENI=1", "PREFIX_DELEGATION", "VM_MEMORY_OVERHEAD_PERCENT=2", "NOTHING="])
    said = str(caught.value)
    for words in (
        "did you mean 'RESERVED_ENIS'?",
        "'PREFIX_DELEGATION': expected NAME=VALUE",
        "less than 1",
        "NOTHING",
    ):
        assert words in said
    assert parsed_settings(["RESERVED_ENIS=1", "PREFIX_DELEGATION="]) == {
        "RESERVED_ENIS": "1",
        "PREFIX_DELEGATION": "",
    }
