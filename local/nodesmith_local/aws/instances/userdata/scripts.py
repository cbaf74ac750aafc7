"""Scripts that call EKS's bootstrap script, with the kubelet's flags: bash on Amazon Linux 2, PowerShell on Windows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from email.parser import Parser
from typing import Any

from nodesmith.model.apimachinery.labels import Taint
from nodesmith.model.nodeclasses.instancesettings import AL2, WINDOWS_FAMILIES
from nodesmith_local.aws.instances.userdata.bootstrap import Bootstrap, Unusable, pairs, permitted, required

BOOTSTRAP = "/etc/eks/bootstrap.sh"
_POWERSHELL = re.compile(r"<powershell>(.*?)</powershell>", re.IGNORECASE | re.DOTALL)
_QUOTE = "['\u2018\u2019\u201a\u201b]"
_PARAMETER = re.compile(rf"\s+-(\w+)\s+{_QUOTE}((?:{_QUOTE}{{2}}|(?!{_QUOTE}).)*){_QUOTE}", re.DOTALL)
_DOUBLED = re.compile(f"{_QUOTE}({_QUOTE})")
_NUMBER_FLAGS = {
    "max-pods": "maxPods",
    "pods-per-core": "podsPerCore",
    "eviction-max-pod-grace-period": "evictionMaxPodGracePeriod",
    "image-gc-high-threshold": "imageGCHighThresholdPercent",
    "image-gc-low-threshold": "imageGCLowThresholdPercent",
}
_MAP_FLAGS = {
    "system-reserved": ("systemReserved", "="),
    "kube-reserved": ("kubeReserved", "="),
    "eviction-hard": ("evictionHard", "<"),
    "eviction-soft": ("evictionSoft", "<"),
    "eviction-soft-grace-period": ("evictionSoftGracePeriod", "="),
}


def bash_bootstrap(text: str) -> Bootstrap:
    """Read the arguments that a shell script passes to the bootstrap script. Raises Unusable."""
    arguments = next(_calls(text), None)
    if arguments is None:
        raise Unusable(f"no script calls {BOOTSTRAP}")
    options: dict[str, str] = {}
    remaining = iter(arguments[2:])
    for argument in remaining:
        options[argument.removeprefix("--")] = next(remaining, "")
    required(options, ("apiserver-endpoint", "b64-cluster-ca"), BOOTSTRAP)
    config, labels, taints = _kubelet_flags(shlex.split(options.get("kubelet-extra-args", "")))
    if options.get("dns-cluster-ip"):
        config["clusterDNS"] = [options["dns-cluster-ip"]]
    storage = "RAID0" if options.get("local-disks") == "raid0" else ""
    return Bootstrap(arguments[1], options["apiserver-endpoint"], config, labels, taints, storage, AL2)


def powershell_bootstrap(text: str) -> Bootstrap:
    """Read the arguments that a PowerShell script passes to the bootstrap script. Raises Unusable."""
    script = _POWERSHELL.search(text)
    if script is None:
        raise Unusable("no <powershell> script in the user data")
    parameters = {name: _DOUBLED.sub(r"\1", value) for name, value in _PARAMETER.findall(script[1])}
    required(
        parameters,
        ("EKSClusterName", "APIServerEndpoint", "Base64ClusterCA"),
        "the call of Start-EKSBootstrap.ps1",
    )
    config, labels, taints = _kubelet_flags(shlex.split(parameters.get("KubeletExtraArgs", "")))
    if parameters.get("DNSClusterIP"):
        config["clusterDNS"] = [parameters["DNSClusterIP"]]
    cluster, endpoint = parameters["EKSClusterName"], parameters["APIServerEndpoint"]
    return Bootstrap(cluster, endpoint, config, labels, taints, "", WINDOWS_FAMILIES[0])


def _calls(text: str) -> Iterator[list[str]]:
    """Yield the words of each line that calls the bootstrap script."""
    parts = Parser().parsestr(text).walk() if not text.startswith("#!") else ()
    scripts = [str(part.get_payload()) for part in parts if part.get_content_type() == "text/x-shellscript"]
    for script in scripts or [text]:
        for line in script.splitlines():
            if line.startswith(BOOTSTRAP):
                yield shlex.split(line)


def _kubelet_flags(arguments: Iterable[str]) -> tuple[dict[str, Any], Mapping[str, str], tuple[Taint, ...]]:
    """Return the flags as configuration, labels and taints. Raises Unusable for an unknown flag."""
    config: dict[str, Any] = {}
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    for argument in arguments:
        name, _, value = argument.removeprefix("--").partition("=")
        if name in _NUMBER_FLAGS:
            config[_NUMBER_FLAGS[name]] = int(value)
        elif name in _MAP_FLAGS:
            field, sign = _MAP_FLAGS[name]
            config[field] = pairs(value, sign)
        elif name == "cpu-cfs-quota":
            config["cpuCFSQuota"] = value == "true"
        elif name == "node-labels":
            labels |= pairs(value)
        elif name == "register-with-taints":
            taints = tuple(_taint(taint) for taint in value.split(",") if taint)
        else:
            raise Unusable(f"the kubelet has no flag {argument!r}")
    return config, permitted(labels), taints


def _taint(text: str) -> Taint:
    key_and_value, _, effect = text.rpartition(":")
    key, _, value = key_and_value.partition("=")
    return Taint(key, effect, value)
