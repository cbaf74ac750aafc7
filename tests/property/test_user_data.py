"""A node reads the intended settings from user data, whatever a claim contains."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from nodesmith.decisions.launch import launch_plan
from nodesmith.decisions.launch.userdata.starting import Start, node_labels, registered_taints
from nodesmith.decisions.launch.userdata.writing import user_data
from nodesmith.model.apimachinery.taints import Effect, Taint
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.ec2.instancetypes import InstanceType
from nodesmith_cli.local.cloud.userdata.reading import parse_user_data
from tests.fakes.cloud import CLUSTER
from tests.launching import CLAIM, NODECLASS, options, status

NAMES = st.from_regex(r"[a-zA-Z0-9]([a-zA-Z0-9_.-]{0,20}[a-zA-Z0-9])?", fullmatch=True)
DOMAINS = st.sampled_from(
    ("", "example.com/", "team.io/", "kubernetes.io/", "node.kubernetes.io/", "x.k8s.io/")
)
KEYS = st.builds(lambda domain, name: domain + name, DOMAINS, NAMES)
LABELS = st.dictionaries(KEYS, st.one_of(st.just(""), NAMES), max_size=8)
TAINTS = st.builds(
    Taint, KEYS, st.sampled_from([str(effect) for effect in Effect]), st.one_of(st.just(""), NAMES)
)
OPTIONS = options(["c5.large", "m5.large", "m5.xlarge", "m6g.large", "r5.large", "g5.xlarge"])
SCRIPTS = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=200).map(
    lambda t: "#!/bin/sh\n" + t
)


@given(labels=LABELS, taints=st.lists(TAINTS, max_size=4), startup=st.lists(TAINTS, max_size=4))
def test_labels_and_taints_are_read_back_as_intended(
    labels: dict[str, str], taints: list[Taint], startup: list[Taint]
) -> None:
    claim = replace(CLAIM, labels=labels, taints=tuple(taints), startup_taints=tuple(startup))
    started = parse_user_data(user_data(Start(claim, "spot", 29, NODECLASS, CLUSTER)))
    assert started.labels == node_labels(claim, "spot")
    assert started.taints == tuple(registered_taints(claim))


@given(script=SCRIPTS)
def test_a_users_script_never_hides_the_nodes_settings(script: str) -> None:
    started = parse_user_data(
        user_data(Start(CLAIM, "spot", 29, replace(NODECLASS, user_data=script), CLUSTER))
    )
    assert (started.cluster, started.kubelet["maxPods"]) == ("express", 29)


@given(offered=st.permutations(OPTIONS))
def test_a_launch_plan_does_not_depend_on_the_order_of_offerings(
    offered: list[tuple[InstanceType, Offering]],
) -> None:
    usual = launch_plan(CLAIM, OPTIONS, NODECLASS, status(), CLUSTER)
    assert launch_plan(CLAIM, offered, NODECLASS, status(), CLUSTER) == usual
