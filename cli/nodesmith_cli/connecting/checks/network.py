"""The VPC CNI's settings, compared with those from which nodesmith computes how many pods a node takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from nodesmith.adapters.kubernetes.apiserver import ApiServer
from nodesmith.errors import Rejected
from nodesmith_cli.connecting.checks.findings import Finding, info, warning
from nodesmith_cli.connecting.observed import Account
from nodesmith_cli.sharing.ownership import listed
from nodesmith_formats.kubernetes.objects import name_of
from nodesmith_formats.wording import some

CNI = "/apis/apps/v1/namespaces/kube-system/daemonsets/aws-node"
CONFIG = "/api/v1/namespaces/kube-system/configmaps/amazon-vpc-cni"
ENI_CONFIGS = "/apis/crd.k8s.amazonaws.com/v1alpha1/eniconfigs"
_OBJECT, _CONFIG_MAP = "DaemonSet kube-system/aws-node", "ConfigMap kube-system/amazon-vpc-cni"
_CUSTOM, _PREFIXES = "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG", "ENABLE_PREFIX_DELEGATION"
_WINDOWS_IPAM, _WINDOWS_PREFIXES = "enable-windows-ipam", "enable-windows-prefix-delegation"
_POD_ENI, _IPV6, _BY_LABEL = "ENABLE_POD_ENI", "ENABLE_IPv6", "ENI_CONFIG_LABEL_DEF"
_ZONE_LABELS = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")


@dataclass(frozen=True, slots=True)
class Cni:
    """The environment of the VPC CNI, empty for another CNI, its ConfigMap, and the names of the ENIConfigs."""

    environment: Mapping[str, str] = field(default_factory=dict)
    eni_configs: tuple[str, ...] = ()
    config: Mapping[str, str] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        """Return whether a switch is on."""
        return self.environment.get(name, "").lower() == "true"


def cni_of(server: ApiServer) -> Cni | None:
    """Return the VPC CNI of a cluster, None if it has another CNI or the caller may not read it. Raises Transient."""
    try:
        daemonset, configs = server.get(CNI), listed(server, ENI_CONFIGS)
    except Rejected:
        return None
    if daemonset is None:
        return None
    containers = (((daemonset.get("spec") or {}).get("template") or {}).get("spec") or {}).get(
        "containers"
    ) or ()
    environment = {
        str(variable["name"]): str(variable.get("value") or "")
        for container in containers
        if container.get("name") == "aws-node"
        for variable in container.get("env") or ()
    }
    return Cni(environment, tuple(sorted(map(name_of, configs))), _config(server))


def _config(server: ApiServer) -> Mapping[str, str]:
    """Return the VPC CNI's ConfigMap, empty if there is none or the caller may not read it."""
    try:
        config_map = server.get(CONFIG)
    except Rejected:
        return {}
    return (config_map or {}).get("data") or {}


def network_findings(cni: Cni | None, settings: Mapping[str, str], account: Account) -> Iterator[Finding]:
    """Yield findings about settings with which nodes take more pods than get addresses, or fewer than could run.

    `settings` are those of the registration.
    """
    if cni is None or cni.has(_IPV6):  # in an IPv6 cluster, addresses limit nothing
        return
    yield from _reserved(cni, settings, account.cluster.name)
    yield from _prefixes(cni, settings, account.cluster.name)
    yield from _windows_prefixes(cni, settings, account.cluster.name)
    yield from _eni_configs(cni, account)


def _reserved(cni: Cni, settings: Mapping[str, str], cluster: str) -> Iterator[Finding]:
    """Compare RESERVED_ENIS with the interfaces whose addresses no pod gets."""
    using = {_CUSTOM: "the first interface", _POD_ENI: "the trunk interface"}
    reasons = [f"{name}=true: no ordinary pod uses {what}" for name, what in using.items() if cni.has(name)]
    written = settings.get("RESERVED_ENIS", "")
    reserved = int(written) if written.isdecimal() else 0
    connect = f"nodesmith connect {cluster} --setting RESERVED_ENIS"
    if reserved < len(reasons):
        detail = (
            f"{'; '.join(reasons)}, but RESERVED_ENIS is {reserved}: nodes are given pods without an address"
        )
        yield warning("vpc-cni", _OBJECT, detail, f"{connect}={len(reasons)}")
    elif reserved and not reasons:
        detail = f"RESERVED_ENIS is {reserved}, but all interfaces serve pods: nodes could take more pods"
        yield warning("vpc-cni", _OBJECT, detail, f"{connect}=0")


def _prefixes(cni: Cni, settings: Mapping[str, str], cluster: str) -> Iterator[Finding]:
    expected, there = settings.get("PREFIX_DELEGATION", "").lower() == "true", cni.has(_PREFIXES)
    connect = f"nodesmith connect {cluster} --setting PREFIX_DELEGATION"
    if there and not expected:
        detail = f"{_PREFIXES}=true, but PREFIX_DELEGATION is false: nodes could take more pods"
        yield warning("vpc-cni", _OBJECT, detail, f"{connect}=true")
    elif expected and not there:
        detail = f"PREFIX_DELEGATION is true, but {_PREFIXES} is not: nodes are given pods without an address"
        yield warning("vpc-cni", _OBJECT, detail, f"{connect}=false, or {_enable(_PREFIXES)}")


def _windows_prefixes(cni: Cni, settings: Mapping[str, str], cluster: str) -> Iterator[Finding]:
    """Compare WINDOWS_PREFIX_DELEGATION with the ConfigMap that the VPC resource controller reads."""
    expected = settings.get("WINDOWS_PREFIX_DELEGATION", "").lower() == "true"
    there = all(cni.config.get(key) == "true" for key in (_WINDOWS_IPAM, _WINDOWS_PREFIXES))
    connect = f"nodesmith connect {cluster} --setting WINDOWS_PREFIX_DELEGATION"
    if there and not expected:
        but = "but WINDOWS_PREFIX_DELEGATION is false: Windows nodes could take more pods"
        detail = f"{_WINDOWS_PREFIXES} is true, {but}"
        yield warning("vpc-cni", _CONFIG_MAP, detail, f"{connect}=true")
    elif expected and not there:
        detail = (
            f"WINDOWS_PREFIX_DELEGATION is true, but {_WINDOWS_IPAM} and {_WINDOWS_PREFIXES} are not both true: "
            "Windows nodes are given pods without an address"
        )
        yield warning("vpc-cni", _CONFIG_MAP, detail, f"{connect}=false, or set both keys to true")


def _eni_configs(cni: Cni, account: Account) -> Iterator[Finding]:
    if not cni.has(_CUSTOM):
        if cni.eni_configs:
            detail = f"exist, but {_CUSTOM} is not true: they have no effect"
            yield info("vpc-cni", f"ENIConfigs {some(cni.eni_configs)}", detail)
        return
    if not cni.eni_configs:
        detail = f"{_CUSTOM}=true, but there is no ENIConfig: no pod gets an address"
        yield warning("vpc-cni", _OBJECT, detail, "create an ENIConfig for each zone of the nodes' subnets")
        return
    if cni.environment.get(_BY_LABEL) not in _ZONE_LABELS:
        return
    zones = {subnet.zone for subnet in account.subnets if subnet.discovery == account.cluster.name}
    missing = sorted(zones - {*cni.eni_configs})
    if missing:
        detail = f"none is named {some(missing)}: pods on nodes of such a zone get no address"
        yield warning("vpc-cni", "ENIConfigs", detail, f"kubectl create an ENIConfig named {missing[0]}")


def _enable(name: str) -> str:
    return f"kubectl set env daemonset aws-node -n kube-system {name}=true"
