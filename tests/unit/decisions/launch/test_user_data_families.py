"""User data of each image family, read back with the family's own parser."""

from __future__ import annotations

import shlex
import subprocess
import time
import tomllib
from dataclasses import replace
from email.parser import Parser
from typing import Any

import pytest

from nodesmith.decisions.launch import launch_obstacle
from nodesmith.decisions.launch.templates import user_data
from nodesmith.decisions.launch.userdata.starting import (
    MalformedUserData,
    Start,
    node_labels,
    registered_taints,
)
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import Taint
from nodesmith.model.apimachinery.quantities import parse_resources
from nodesmith.model.nodeclasses.instancesettings import (
    WINDOWS_FAMILIES,
    KubeletConfiguration,
    read_kubelet,
    write_kubelet,
)
from nodesmith.model.nodeclasses.nodeclasses import AMISelectorTerm, EC2NodeClass
from nodesmith.model.schema.nodeclasses import KUBELET
from nodesmith_local.aws.instances.userdata.bootstrap import Bootstrap
from nodesmith_local.aws.instances.userdata.reading import parse_user_data
from tests.fakes.cloud import CLUSTER
from tests.objects.launching import CLAIM, NODECLASS
from tests.processes.powershell import calls, script_of

FAMILIES = ("AL2", "AL2023", "Bottlerocket", *WINDOWS_FAMILIES)
TAINTED = replace(
    CLAIM,
    labels={**CLAIM.labels, "team": "express"},
    taints=(Taint("team", "NoSchedule", "express"), Taint("team", "NoExecute")),
    startup_taints=(Taint("cilium.io/agent-not-ready", "NoExecute"),),
)
KUBELET_SPEC: dict[str, Any] = {
    "clusterDNS": ["10.100.0.53"],
    "maxPods": 42,
    "podsPerCore": 10,
    "systemReserved": {"cpu": "100m", "memory": "100Mi", "ephemeral-storage": "1Gi", "pid": "100"},
    "kubeReserved": {"cpu": "1", "memory": "1Gi"},
    "evictionHard": {"memory.available": "5%", "nodefs.available": "1Gi"},
    "evictionSoft": {"memory.available": "500Mi"},
    "evictionSoftGracePeriod": {"memory.available": "1m30s"},
    "evictionMaxPodGracePeriod": 60,
    "imageGCHighThresholdPercent": 85,
    "imageGCLowThresholdPercent": 80,
    "cpuCFSQuota": False,
}
SHELL = "#!/bin/bash\necho 'joining'\n"
TOML = """# my settings
[settings.motd]
text = "hi"

[settings.kernel.sysctl]
"net.core.rmem_max" = "212992"

[settings.kubernetes]
max-pods = 3
allowed-unsafe-sysctls = ["net.ipv4.tcp_fin_timeout"]
brand-new-setting = { when = 2026-11-26T04:30:00Z, share = 0.5 }

[settings.kubernetes.node-labels]
team = "mine"
tier = "web"

[settings.kubernetes.node-taints]
mine = ["a:NoSchedule"]

[settings.bootstrap-containers.setup]
source = "example.com/setup:1"
mode = "once"
user-data = "aGVsbG8="
essential = true

[settings.bootstrap-commands.111-say-hello]
commands = [["echo", "hello"]]
mode = "always"
"""
POWERSHELL = "Write-Host 'it''s me'\r\n$names = @(\"a\", 'b')\n"


def of(family: str, **changes: Any) -> EC2NodeClass:
    return replace(NODECLASS, ami_family=family, **changes)


def text_of(nodeclass: EC2NodeClass, image: str = "", **cluster: Any) -> str:
    return user_data(Start(TAINTED, "spot", 29, nodeclass, replace(CLUSTER, **cluster), image))


def started(nodeclass: EC2NodeClass) -> Bootstrap:
    return parse_user_data(text_of(nodeclass))


def message_for(nodeclass: EC2NodeClass, **cluster: Any) -> str:
    obstacle = launch_obstacle(nodeclass, replace(CLUSTER, **cluster))
    return f"{obstacle.reason}: {obstacle.message}" if obstacle else ""


@pytest.mark.parametrize("family", FAMILIES)
def test_a_node_joins_its_cluster_with_its_labels_taints_and_pods(family: str) -> None:
    found = started(of(family))
    assert (found.cluster, found.endpoint) == ("express", "https://api.express.test")
    assert found.labels == node_labels(TAINTED, "spot")
    assert sorted(found.taints) == sorted(registered_taints(TAINTED))
    assert (found.kubelet["maxPods"], found.kubelet["clusterDNS"]) == (29, ["10.100.0.10"])
    assert found.local_storage == ""


MAPPED = [
    (family, field)
    for family in FAMILIES
    for field in KUBELET.fields
    if (family, field) != ("Bottlerocket", "podsPerCore")
]


def test_every_kubelet_field_has_a_value_in_these_tests() -> None:
    assert set(KUBELET_SPEC) == set(KUBELET.fields)


@pytest.mark.parametrize(("family", "field"), MAPPED)
def test_a_kubelet_field_reaches_the_kubelet(family: str, field: str) -> None:
    written = {field: KUBELET_SPEC[field]}
    if field.startswith("evictionSoft"):
        written = {name: KUBELET_SPEC[name] for name in ("evictionSoft", "evictionSoftGracePeriod")}
    if (family, field) == ("Bottlerocket", "systemReserved"):
        written[field] = {name: amount for name, amount in written[field].items() if name != "pid"}
    nodeclass = of(family, kubelet=read_kubelet(written))
    assert message_for(nodeclass) == ""
    wanted = 29 if field == "maxPods" else write_kubelet(nodeclass.kubelet)[field]
    assert started(nodeclass).kubelet[field] == wanted


def test_a_kubelet_field_that_is_not_set_is_not_written() -> None:
    absent = set(KUBELET.fields) - {"clusterDNS", "maxPods"}
    for family in FAMILIES:
        assert not absent & set(started(of(family)).kubelet), family


@pytest.mark.parametrize(
    ("family", "spec", "said"),
    [
        (
            "Bottlerocket",
            {"podsPerCore": 10},
            "spec.kubelet.podsPerCore: Bottlerocket has no such setting: use maxPods",
        ),
        (
            "Bottlerocket",
            {"kubeReserved": {"pid": "100"}},
            "spec.kubelet.kubeReserved.pid: Bottlerocket reserves",
        ),
        (
            "Bottlerocket",
            {"evictionHard": {"memory.available": "100%"}},
            "spec.kubelet.evictionHard[memory.available]: Bottlerocket allows less than 100%: write 0%",
        ),
        (
            "Bottlerocket",
            {"evictionSoft": {"pid.available": "5%"}, "evictionSoftGracePeriod": {"pid.available": "30s1m"}},
            "spec.kubelet.evictionSoftGracePeriod[pid.available]: is 30s1m, and Bottlerocket reads h, m",
        ),
        (
            "AL2",
            {"clusterDNS": ["10.0.0.1", "10.0.0.2"]},
            "spec.kubelet.clusterDNS: has 2 addresses, and AL2",
        ),
        (
            "Windows2022",
            {"clusterDNS": ["10.0.0.1", "10.0.0.2"]},
            "has 2 addresses, and Windows2022 passes one",
        ),
        (
            "AL2",
            {"registryPullQPS": 10},
            "spec.kubelet.registryPullQPS: AL2 cannot set it: leave it out, or use AL2023",
        ),
        ("Bottlerocket", {"registryPullQPS": 10}, "spec.kubelet.registryPullQPS: Bottlerocket cannot set it"),
        ("Windows2019", {"registryPullQPS": 10}, "spec.kubelet.registryPullQPS: Windows2019 cannot set it"),
    ],
)
def test_a_kubelet_field_that_a_family_cannot_set_is_refused_by_name(
    family: str, spec: dict[str, Any], said: str
) -> None:
    found = message_for(of(family, kubelet=read_kubelet(spec)))
    assert found.startswith("UnsupportedKubeletConfiguration: ")
    assert said in found


@pytest.mark.parametrize("family", ["AL2023", "Custom"])
def test_a_family_that_reads_any_kubelet_field_takes_any(family: str) -> None:
    kubelet = read_kubelet({"registryPullQPS": 10, "podsPerCore": 3, "clusterDNS": ["10.0.0.1", "10.0.0.2"]})
    assert message_for(of(family, kubelet=kubelet)) == ""


def test_bottlerocket_gets_all_addresses_of_the_dns() -> None:
    kubelet = KubeletConfiguration(cluster_dns=("10.0.0.1", "10.0.0.2"))
    assert started(of("Bottlerocket", kubelet=kubelet)).kubelet["clusterDNS"] == ["10.0.0.1", "10.0.0.2"]


@pytest.mark.parametrize("family", ["AL2", "AL2023", "Bottlerocket"])
def test_instance_store_disks_are_combined_where_asked(family: str) -> None:
    assert started(of(family, instance_store_policy="RAID0")).local_storage == "RAID0"


@pytest.mark.parametrize("family", WINDOWS_FAMILIES)
def test_what_windows_cannot_do_is_refused(family: str) -> None:
    assert message_for(of(family, instance_store_policy="RAID0")) == (
        f"UnsupportedField: spec.instanceStorePolicy is RAID0, and {family} does not combine disks: remove it"
    )
    found = message_for(of(family), ip_family="ipv6", service_cidr="fd00::/108")
    assert found.startswith(
        f"UnsupportedAMIFamily: spec.amiFamily is {family}, and Windows nodes cannot join an IPv6"
    )


# AL2


def bash_words(text: str) -> list[str]:
    """Return the arguments with which bash would call EKS's bootstrap script."""
    parts = [part for part in Parser().parsestr(text).walk() if not part.is_multipart()]
    script = str(parts[-1].get_payload())
    shown = script[script.index("/etc/eks") :].replace("/etc/eks/bootstrap.sh", "printf '%s\\0'", 1)
    return subprocess.run(
        ["/bin/bash", "-c", shown], capture_output=True, text=True, check=True
    ).stdout.split("\0")[:-1]


def test_al2_calls_the_bootstrap_script_as_bash_reads_it() -> None:
    words = bash_words(text_of(of("AL2", instance_store_policy="RAID0", kubelet=read_kubelet(KUBELET_SPEC))))
    assert words[:7] == [
        "express", "--apiserver-endpoint", "https://api.express.test", "--b64-cluster-ca", "Q0E=", "--dns-cluster-ip",
        "10.100.0.53",
    ]  # fmt: skip
    assert words[7:9] == ["--use-max-pods", "false"]
    labels = ",".join(f"{key}={value}" for key, value in node_labels(TAINTED, "spot").items())
    taints = ",".join(map(str, registered_taints(TAINTED)))
    assert words[11:] == ["--local-disks", "raid0"]
    assert shlex.split(words[10]) == [
        f"--node-labels={labels}",
        f"--register-with-taints={taints}",
        "--max-pods=29",
        "--pods-per-core=10",
        "--system-reserved=cpu=100m,ephemeral-storage=1Gi,memory=100Mi,pid=100",
        "--kube-reserved=cpu=1,memory=1Gi",
        "--eviction-hard=memory.available<5%,nodefs.available<1Gi",
        "--eviction-soft=memory.available<500Mi",
        "--eviction-soft-grace-period=memory.available=1m30s",
        "--eviction-max-pod-grace-period=60",
        "--image-gc-high-threshold=85",
        "--image-gc-low-threshold=80",
        "--cpu-cfs-quota=false",
    ]


def test_al2_runs_the_users_parts_before_the_bootstrap_script() -> None:
    for own in (SHELL, SHELL.replace("\n", "\r\n"), multipart("text/x-shellscript", SHELL)):
        text = text_of(of("AL2", user_data=own))
        first, last = (
            str(part.get_payload()) for part in Parser().parsestr(text).walk() if not part.is_multipart()
        )
        assert first == SHELL
        assert "/etc/eks/bootstrap.sh express" in last
        assert "\r" not in text


def test_al2_names_the_ip_family_of_an_ipv6_cluster() -> None:
    words = bash_words(text_of(of("AL2"), ip_family="ipv6", dns_ip="fd00::a"))
    assert words[5:9] == ["--ip-family", "ipv6", "--dns-cluster-ip", "fd00::a"]


@pytest.mark.parametrize("dns", ["10.0.0.1'; touch /tmp/x; '", "$(reboot)", '`id`"', "a\nb"])
def test_al2_passes_anything_on_as_one_argument(dns: str) -> None:
    assert dns in bash_words(text_of(of("AL2", kubelet=KubeletConfiguration(cluster_dns=(dns,)))))


# Bottlerocket


def settings(nodeclass: EC2NodeClass, image: str = "") -> dict[str, Any]:
    found = tomllib.loads(text_of(nodeclass, image))["settings"]
    assert isinstance(found, dict)
    return found


def test_bottlerocket_keeps_every_setting_of_the_user_that_a_node_does_not_need_otherwise() -> None:
    theirs = tomllib.loads(TOML)["settings"]
    found = settings(of("Bottlerocket", user_data=TOML))
    for name in ("motd", "kernel", "bootstrap-containers", "bootstrap-commands"):
        assert found[name] == theirs[name]
    kubernetes = found["kubernetes"]
    for name in ("allowed-unsafe-sysctls", "brand-new-setting"):
        assert kubernetes[name] == theirs["kubernetes"][name]
    assert kubernetes["node-labels"] == {"tier": "web", **node_labels(TAINTED, "spot")}
    assert kubernetes["node-taints"] == {
        "cilium.io/agent-not-ready": [":NoExecute"],
        "karpenter.sh/unregistered": [":NoExecute"],
        "team": [":NoExecute", "express:NoSchedule"],
    }
    assert (kubernetes["max-pods"], kubernetes["cluster-name"]) == (29, "express")
    assert (kubernetes["api-server"], kubernetes["cluster-certificate"]) == (
        "https://api.express.test",
        "Q0E=",
    )
    assert kubernetes["cluster-dns-ip"] == "10.100.0.10"


def test_bottlerocket_reads_percentages_as_text() -> None:
    kubernetes = settings(of("Bottlerocket", kubelet=read_kubelet({"imageGCHighThresholdPercent": 85})))[
        "kubernetes"
    ]
    assert kubernetes["image-gc-high-threshold-percent"] == "85"


def test_the_nodeclasses_reservations_replace_the_users() -> None:
    own = '[settings.kubernetes.kube-reserved]\ncpu = "3"\nmemory = "9Gi"\n'
    kubelet = KubeletConfiguration(kube_reserved=parse_resources({"cpu": "1"}), eviction_hard=FrozenMap())
    found = settings(of("Bottlerocket", user_data=own, kubelet=kubelet))
    assert found["kubernetes"]["kube-reserved"] == {"cpu": "1"}


@pytest.mark.parametrize(
    ("alias", "image", "binds_all"),
    [
        ("bottlerocket@v1.45.9", "", False),
        ("bottlerocket@1.46.0", "", True),
        ("bottlerocket@latest", "bottlerocket-aws-k8s-1.33-x86_64-v1.50.0-5d9ac849", True),
        ("bottlerocket@latest", "bottlerocket-aws-k8s-1.33-x86_64-v1.9.2-5d9ac849", False),
        ("", "bottlerocket-aws-k8s-1.33-fips-x86_64-v1.50.0-5d9ac849", True),
        ("", "team-image", False),
    ],
)
def test_bottlerocket_mounts_instance_storage_as_its_version_needs(
    alias: str, image: str, binds_all: bool
) -> None:
    terms = (AMISelectorTerm(alias=alias),) if alias else (AMISelectorTerm(name="*"),)
    nodeclass = of("Bottlerocket", instance_store_policy="RAID0", ami_selector_terms=terms, user_data=TOML)
    found = settings(nodeclass, image)["bootstrap-commands"]
    named = [] if binds_all else ["--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"]
    assert found["000-mount-instance-storage"] == {
        "commands": [
            ["apiclient", "ephemeral-storage", "init"],
            ["apiclient", "ephemeral-storage", "bind", *named],
        ],
        "essential": True,
        "mode": "always",
    }
    assert found["111-say-hello"]["commands"] == [["echo", "hello"]]


# Windows


def test_windows_runs_the_users_lines_then_the_bootstrap_script_as_powershell_reads_it() -> None:
    for own in (
        POWERSHELL,
        f"<powershell>\n{POWERSHELL}</powershell>\n",
        f"<PowerShell>{POWERSHELL}</PowerShell>",
    ):
        nodeclass = of(
            "Windows2022", user_data=own, kubelet=read_kubelet({"maxPods": 9, "cpuCFSQuota": False})
        )
        script = script_of(text_of(nodeclass))
        (call,) = calls(script)
        flags = call.pop("KubeletExtraArgs")
        assert call == {
            "EKSClusterName": "express",
            "APIServerEndpoint": "https://api.express.test",
            "Base64ClusterCA": "Q0E=",
            "DNSClusterIP": "10.100.0.10",
        }
        assert {"--max-pods=29", "--cpu-cfs-quota=false"} <= {*shlex.split(flags)}
        assert script.index("Write-Host 'it''s me'\n") < script.index("Start-EKSBootstrap.ps1")


def test_windows_keeps_the_options_of_ec2launch_after_the_script() -> None:
    text = text_of(of("Windows2019", user_data="<powershell>dir</powershell>\n<persist>true</persist>\n"))
    assert text.endswith("</powershell>\n<persist>true</persist>\n")
    assert "dir" in script_of(text)


@pytest.mark.parametrize(
    "dns", ["10.0.0.1'; Restart-Computer; '", "\u2019; dir; \u2018", "$env:X", "`n", "a\nb", "''"]
)
def test_windows_passes_anything_on_as_one_argument(dns: str) -> None:
    text = text_of(of("Windows2022", kubelet=KubeletConfiguration(cluster_dns=(dns,))))
    (call,) = calls(script_of(text))
    doubled = dns.replace("\u2019", "\u2019\u2019").replace("\u2018", "\u2018\u2018")
    assert call["DNSClusterIP"] == doubled  # this grammar does not know that PowerShell ends strings there
    assert parse_user_data(text).kubelet["clusterDNS"] == [dns]


# User data that cannot be merged


def multipart(kind: str, body: str, boundary: str = "B") -> str:
    """Return a MIME document of one part, which begins in line 4."""
    head = f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="B"\n\n--{boundary}\n'
    return f"{head}Content-Type: {kind}\n\n{body}\n--{boundary}--\n"


def config(rest: str, kind: str = "NodeConfig", version: str = "v1alpha1") -> str:
    """Return a NodeConfig whose `rest` begins in line 3."""
    return f"apiVersion: node.eks.aws/{version}\nkind: {kind}\n{rest}"


NODE_CONFIG, UNREAD = "application/node.eks.aws", "nothing on the node reads a MIME part of type"
HOSTILE = {
    "Bottlerocket": {
        SHELL: "line 2: it is not TOML",
        "[settings.motd]\n[settings.kubernetes]\n[settings.motd]\n": "line 3: it is not TOML: Cannot declare",
        "[settings]\na = 1\na = 2\n": "line 3: it is not TOML: Cannot overwrite",
        "[settings]\nx = '''never closed\n": "line 3: it is not TOML",
        "# hm\nsettings = 3\n": "line 2: settings must be a table, but is the value '3'",
        "\n[[settings.kubernetes]]\n": "line 2: settings.kubernetes must be a table, but is an array",
        "[settings.kubernetes]\nnode-labels = 'a=b'\n": "line 2: settings.kubernetes.node-labels must be a table",
        f"x = {'[' * 3000}": "too deep",
        f"x = {'9' * 5000}": "it is not TOML: Exceeds the limit",
    },
    "Windows2022": {
        "dir\n</powershell>\n": "line 2: </powershell> cannot stand here",
        "<powershell>\ndir\n<powershell>\n</powershell>": "line 3: <powershell> cannot stand here",
        "dir\n<script>\nver\n</script>": "line 2: <script> cannot stand here",
        "<powershell>\ndir\n</powershell>\nver\n": "line 4: 'ver' follows </powershell>",
    },
    "AL2": {
        multipart(
            "text/x-shelscript", "x"
        ): f"line 5: {UNREAD} text/x-shelscript, did you mean 'text/x-shellscript'?",
        multipart(
            NODE_CONFIG, "x"
        ): f"line 5: {UNREAD} {NODE_CONFIG}: use text/x-shellscript, text/cloud-config",
    },
    "AL2023": {
        multipart("text/plain", "x", "OTHER"): "the MIME document has no parts",
        config("spec: {a: [1, 2}\n"): "line 3: the NodeConfig is not YAML",
        config("", "NodeConf"): "line 2: kind of the NodeConfig is 'NodeConf': write NodeConfig",
        "apiVersion: node.eks.aws/v1alpha1\nspec: {}\n": "line 1: kind of the NodeConfig is missing: write NodeConfig",
        config(
            "", version="v2"
        ): "apiVersion of the NodeConfig is 'node.eks.aws/v2': write node.eks.aws/v1alpha1",
        config("spec: none\n"): "line 3: spec of the NodeConfig must be a map",
        config(f"spec: {'[' * 3000}\n"): "NodeConfig",
        multipart(NODE_CONFIG, "---\na: {"): "line 8: the NodeConfig is not YAML",
    },
}


@pytest.mark.parametrize(
    ("family", "text", "said"),
    [(family, text, said) for family, cases in HOSTILE.items() for text, said in cases.items()],
)
def test_user_data_that_cannot_be_merged_is_refused_with_line_and_reason(
    family: str, text: str, said: str
) -> None:
    found = message_for(of(family, user_data=text))
    assert found.startswith("UserDataInvalid: spec.userData: ")
    assert said in found


def test_a_nodeconfig_without_settings_is_fine() -> None:
    for rest in ("", "spec:\n", "spec: {}\n"):
        assert message_for(of("AL2023", user_data=config(rest))) == ""


def test_a_document_with_its_own_handler_may_have_parts_of_any_type() -> None:
    parts = "".join(f"\n--B\nContent-Type: {kind}\n\nx\n" for kind in ("text/part-handler", "text/x-mine"))
    text = f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="B"\n{parts}\n--B--\n'
    assert message_for(of("AL2", user_data=text)) == ""


@pytest.mark.parametrize("family", [*FAMILIES, "Custom"])
def test_user_data_is_measured_after_merging(family: str) -> None:
    own = f"[settings.motd]\ntext = '{'#' * 16_300}'" if family == "Bottlerocket" else "#" * 16_300
    found = message_for(of(family, user_data=own))
    assert found.partition(":")[0] == ("" if family == "Custom" else "UserDataSizeLimitExceeded")


MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12)
)
"""YAML that has 9 ** 11 keys once its merge keys are expanded."""


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("Bottlerocket", " " * 16_000 + "\nsettings = 3\n"),
        ("Bottlerocket", "settings = 3\n" + "a" * 16_000 + " = 1\n"),
        ("Windows2022", "<powershell></powershell>" + " " * 16_000 + "dir"),
        ("Windows2022", "<powershell></powershell>" + "<persist>" * 1_700),
        ("AL2023", config(f"{MERGES}spec: []\n")),
        ("AL2", "x:\n" * 5_000 + "Content-Type: text/none\n\n"),
        ("AL2023", "MIME-Version: 1.0\n" + "x: y\n" * 3_000 + "Content-Type: text/none\n\n"),
    ],
)
def test_refusing_hostile_user_data_takes_no_time(family: str, text: str) -> None:
    began = time.process_time()
    assert message_for(of(family, user_data=text)).startswith("UserDataInvalid")
    assert time.process_time() - began < 0.5


def test_a_line_of_its_own_is_no_part_of_a_launch() -> None:
    with pytest.raises(MalformedUserData) as caught:
        text_of(of("Bottlerocket", user_data="a = 1\nb =\n"))
    assert caught.value.line == 2


def test_al2_takes_a_bare_cloud_config() -> None:
    text = "#cloud-config\npackages: [htop]\n"
    assert f"Content-Type: text/cloud-config\n\n{text}" in text_of(of("AL2", user_data=text))
