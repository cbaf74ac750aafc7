"""Parser of user data as AL2023's nodeadm and kubelet read it: how the node joins, with which labels and taints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email.parser import Parser
from typing import Any

import yaml

from nodesmith.model.apimachinery.labels import kubelet_may_set
from nodesmith.model.apimachinery.taints import Taint

NODE_CONFIG_TYPE = "application/node.eks.aws"


class Unusable(ValueError):
    """User data with which an instance never joins a cluster; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """The kubelet's start-up settings. `kubelet` is its configuration by KubeletConfiguration's field names."""

    cluster: str
    endpoint: str
    kubelet: Mapping[str, Any]
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    local_storage: str = ""
    cidr: str = ""
    """the range of Services' addresses"""

    @property
    def is_ipv6(self) -> bool:
        """Whether Services, and therefore nodes and pods, have IPv6 addresses."""
        return ":" in self.cidr


def parse_user_data(text: str) -> Bootstrap:
    """Parse user data: NodeConfigs in a MIME document, or a bare one. Raises Unusable.

    Later NodeConfigs override earlier ones.
    """
    merged: dict[str, Any] = {}
    for document in _node_configs(text):
        merged = _merged(merged, _parsed(document))
    if not merged:
        raise Unusable("no NodeConfig (node.eks.aws) in the user data")
    spec = merged.get("spec") or {}
    cluster, kubelet = spec.get("cluster") or {}, spec.get("kubelet") or {}
    missing = [
        name
        for name in ("name", "apiServerEndpoint", "certificateAuthority", "cidr")
        if not cluster.get(name)
    ]
    if missing:
        raise Unusable(f"the NodeConfig lacks spec.cluster.{', spec.cluster.'.join(missing)}")
    config = kubelet.get("config") or {}
    storage = (spec.get("instance") or {}).get("localStorage") or {}
    return Bootstrap(
        cluster["name"],
        cluster["apiServerEndpoint"],
        config,
        _labels(kubelet.get("flags") or ()),
        tuple(_taint(taint) for taint in config.get("registerWithTaints") or ()),
        str(storage.get("strategy", "")),
        str(cluster["cidr"]),
    )


def _node_configs(text: str) -> Iterator[str]:
    if text.lstrip().startswith(("apiVersion:", "{", "---")):
        yield text
        return
    for part in Parser().parsestr(text.lstrip("\n")).walk():
        if part.get_content_type() == NODE_CONFIG_TYPE:
            yield str(part.get_payload())


def _parsed(document: str) -> Mapping[str, Any]:
    try:
        config = yaml.safe_load(document)
    except yaml.YAMLError as error:
        raise Unusable(f"a NodeConfig is not YAML: {error}") from error
    if not isinstance(config, Mapping) or config.get("kind") != "NodeConfig":
        raise Unusable("a part of type node.eks.aws is not a NodeConfig")
    return config


def _merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return two NodeConfigs merged by nodeadm's rule: objects merge, flags append, anything else is replaced."""
    merged = dict(first)
    for key, value in second.items():
        known = merged.get(key)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            merged[key] = _merged(known, value)
        elif key == "flags" and isinstance(known, list):
            merged[key] = [*known, *value]
        else:
            merged[key] = value
    return merged


def _labels(flags: Any) -> dict[str, str]:
    """Return the labels of all --node-labels flags. Raises Unusable for a label that the kubelet refuses."""
    labels: dict[str, str] = {}
    for flag in flags:
        name, _, value = str(flag).partition("=")
        if name == "--node-labels":
            pairs = (pair.partition("=") for pair in value.strip("\"'").split(",") if pair)
            labels |= {key: text for key, _, text in pairs}
    forbidden = sorted(key for key in labels if not kubelet_may_set(key))
    if forbidden:
        raise Unusable(f"the kubelet may not label its own node with {', '.join(forbidden)}")
    return labels


def _taint(raw: Mapping[str, Any]) -> Taint:
    return Taint(str(raw.get("key", "")), str(raw.get("effect", "")), str(raw.get("value") or ""))
