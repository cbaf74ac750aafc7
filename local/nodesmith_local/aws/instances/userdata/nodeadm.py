"""User data as nodeadm reads it on Amazon Linux 2023: NodeConfigs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from email.parser import Parser
from typing import Any

import yaml

from nodesmith.model.apimachinery.labels import Taint
from nodesmith_local.aws.instances.userdata.bootstrap import Bootstrap, Unusable, pairs, permitted, required

NODE_CONFIG_TYPE = "application/node.eks.aws"


def nodeadm_bootstrap(text: str) -> Bootstrap:
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
    required(
        cluster,
        ("name", "apiServerEndpoint", "certificateAuthority", "cidr"),
        "spec.cluster of the NodeConfig",
    )
    config = kubelet.get("config") or {}
    storage = (spec.get("instance") or {}).get("localStorage") or {}
    return Bootstrap(
        cluster["name"],
        cluster["apiServerEndpoint"],
        config,
        _labels(kubelet.get("flags") or ()),
        tuple(_taint(taint) for taint in config.get("registerWithTaints") or ()),
        str(storage.get("strategy", "")),
        cidr=str(cluster["cidr"]),
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
        existing = merged.get(key)
        if isinstance(existing, Mapping) and isinstance(value, Mapping):
            merged[key] = _merged(existing, value)
        elif key == "flags" and isinstance(existing, list):
            merged[key] = [*existing, *value]
        else:
            merged[key] = value
    return merged


def _labels(flags: Any) -> Mapping[str, str]:
    """Return the labels of all --node-labels flags. Raises Unusable for a label that the kubelet refuses."""
    labels: dict[str, str] = {}
    for flag in flags:
        name, _, value = str(flag).partition("=")
        if name == "--node-labels":
            labels |= pairs(value.strip("\"'"))
    return permitted(labels)


def _taint(entry: Mapping[str, Any]) -> Taint:
    return Taint(str(entry.get("key", "")), str(entry.get("effect", "")), str(entry.get("value") or ""))
