"""A node reads the intended settings from user data, whatever a claim contains."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from email.parser import Parser
from typing import Any

import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from nodesmith.decisions.launch import launch_obstacle, launch_plan
from nodesmith.decisions.launch.templates import user_data
from nodesmith.decisions.launch.userdata.bootstrapscripts import parameters
from nodesmith.decisions.launch.userdata.starting import Start, node_labels, registered_taints
from nodesmith.model.apimachinery.labels import Effect, Taint
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.ec2.instancetypes import InstanceType
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.nodeclasses.instancesettings import read_kubelet, write_kubelet
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith_local.aws.instances.userdata.reading import parse_user_data
from tests.fakes.cloud import CLUSTER
from tests.objects.launching import CLAIM, NODECLASS, options, status
from tests.processes.powershell import calls, script_of

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


FAMILIES = st.sampled_from(("AL2", "AL2023", "Bottlerocket", "Windows2022"))
RESERVED = st.dictionaries(
    st.sampled_from(("cpu", "memory", "ephemeral-storage")), st.sampled_from(("1", "2", "3")), max_size=3
)
SIGNALS = st.dictionaries(
    st.sampled_from(("memory.available", "nodefs.available", "pid.available")),
    st.sampled_from(("5%", "100Mi", "1Gi", "0.5%")),
    max_size=3,
)
KUBELETS = st.fixed_dictionaries(
    {},
    optional={
        "clusterDNS": st.sampled_from((["10.0.0.10"], ["fd00::a"])),
        "systemReserved": RESERVED,
        "kubeReserved": RESERVED,
        "evictionHard": SIGNALS,
        "evictionSoft": SIGNALS,
        "evictionMaxPodGracePeriod": st.integers(0, 600),
        "imageGCHighThresholdPercent": st.integers(51, 100),
        "imageGCLowThresholdPercent": st.integers(0, 50),
        "cpuCFSQuota": st.booleans(),
    },
)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=40)
TOML_VALUES = st.recursive(
    st.one_of(TEXTS, st.integers(-(2**63), 2**63 - 1), st.booleans(), st.floats(allow_nan=False), st.dates()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=8,
)
TABLES = st.dictionaries(TEXTS, TOML_VALUES, max_size=4)
DOCUMENTS = st.builds(
    lambda top, settings, kubernetes, labels: {
        **top,
        "settings": {**settings, "kubernetes": {**kubernetes, "node-labels": labels}},
    },
    TABLES,
    TABLES,
    TABLES,
    st.dictionaries(TEXTS, TEXTS, max_size=3),
)


def text_of(nodeclass: EC2NodeClass, claim: NodeClaim = CLAIM) -> str:
    return user_data(Start(claim, "spot", 29, nodeclass, CLUSTER))


@given(
    family=FAMILIES, labels=LABELS, taints=st.lists(TAINTS, max_size=4), startup=st.lists(TAINTS, max_size=4)
)
def test_labels_and_taints_are_read_back_as_intended(
    family: str, labels: dict[str, str], taints: list[Taint], startup: list[Taint]
) -> None:
    claim = replace(CLAIM, labels=labels, taints=tuple(taints), startup_taints=tuple(startup))
    started = parse_user_data(text_of(replace(NODECLASS, ami_family=family), claim))
    assert started.labels == node_labels(claim, "spot")
    assert sorted(started.taints) == sorted(registered_taints(claim))


@given(family=FAMILIES, spec=KUBELETS)
def test_kubelet_settings_are_read_back_as_intended(family: str, spec: dict[str, Any]) -> None:
    kubelet = read_kubelet(spec)
    started = parse_user_data(text_of(replace(NODECLASS, ami_family=family, kubelet=kubelet)))
    wanted = {"clusterDNS": [CLUSTER.dns_ip], **write_kubelet(kubelet), "maxPods": 29}
    assert {
        field: value for field, value in started.kubelet.items() if field != "registerWithTaints"
    } == wanted


@given(family=st.sampled_from(("AL2", "AL2023")), script=SCRIPTS)
def test_a_users_script_never_hides_the_nodes_settings(family: str, script: str) -> None:
    started = parse_user_data(text_of(replace(NODECLASS, ami_family=family, user_data=script)))
    assert (started.cluster, started.kubelet["maxPods"]) == ("express", 29)


@given(family=st.sampled_from(("AL2", "AL2023")), scripts=st.lists(SCRIPTS, min_size=1, max_size=4))
def test_every_part_of_a_users_mime_document_is_kept_in_its_order(family: str, scripts: list[str]) -> None:
    document = MIMEMultipart()
    for script in scripts:
        document.attach(MIMEText(script, "x-shellscript", "utf-8"))
    text = text_of(replace(NODECLASS, ami_family=family, user_data=document.as_string()))
    parts = [part for part in Parser().parsestr(text).walk() if not part.is_multipart()]
    assert [part.get_payload(decode=True) for part in parts[:-1]] == [script.encode() for script in scripts]
    assert (parse_user_data(text).cluster, len(parts)) == ("express", len(scripts) + 1)


@given(theirs=DOCUMENTS)
def test_bottlerocket_keeps_what_a_node_does_not_need_otherwise(theirs: dict[str, Any]) -> None:
    own = tomli_w.dumps(theirs)
    merged = tomllib.loads(text_of(replace(NODECLASS, ami_family="Bottlerocket", user_data=own)))
    ours = parse_user_data(tomli_w.dumps(merged))
    assert (ours.cluster, ours.kubelet["maxPods"]) == ("express", 29)
    theirs = tomllib.loads(own)
    kubernetes, wanted = merged["settings"].pop("kubernetes"), theirs["settings"].pop("kubernetes")
    assert merged == theirs
    assert kubernetes.pop("node-labels") == wanted.pop("node-labels") | node_labels(CLAIM, "spot")
    needed = text_of(replace(NODECLASS, ami_family="Bottlerocket"))
    assert kubernetes == wanted | {
        name: value
        for name, value in tomllib.loads(needed)["settings"]["kubernetes"].items()
        if name != "node-labels"
    }


@given(own=TEXTS.filter(lambda text: "<" not in text))
def test_windows_runs_the_users_lines_before_its_own(own: str) -> None:
    text = text_of(replace(NODECLASS, ami_family="Windows2022", user_data=own))
    lines = script_of(text).split("\n")
    assert "\n".join(lines[1:-3]) == (own.strip("\n") if own.strip() else "")
    assert parse_user_data(text).cluster == "express"


@given(text=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60))
def test_powershell_reads_a_quoted_text_as_it_was(text: str) -> None:
    (call,) = calls(f"dir {parameters({'A': text})}\n")
    doubled = text
    for typographic in "\u2018\u2019\u201a\u201b":  # the grammar takes them for letters, unlike PowerShell
        doubled = doubled.replace(typographic, typographic * 2)
    assert call == {"A": doubled}


@given(family=st.sampled_from(("AL2", "AL2023", "Bottlerocket", "Windows2022")), text=st.text(max_size=200))
def test_any_text_is_either_merged_or_refused(family: str, text: str) -> None:
    nodeclass = replace(NODECLASS, ami_family=family, user_data=text)
    obstacle = launch_obstacle(nodeclass, CLUSTER)
    if obstacle is None:
        assert parse_user_data(text_of(nodeclass)).cluster == "express"
    else:
        assert obstacle.reason == "UserDataInvalid"


@given(offered=st.permutations(OPTIONS))
def test_a_launch_plan_does_not_depend_on_the_order_of_offerings(
    offered: list[tuple[InstanceType, Offering]],
) -> None:
    usual = launch_plan(CLAIM, OPTIONS, NODECLASS, status(), CLUSTER)
    assert launch_plan(CLAIM, offered, NODECLASS, status(), CLUSTER) == usual
