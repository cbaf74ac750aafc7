"""User data: what an instance reads when it boots.

AL2023: a MIME document for nodeadm and cloud-init. The NodeClass's own parts come first and nodesmith's last, because
nodeadm merges NodeConfigs in order and the last one wins. nodesmith writes JSON, which every YAML parser reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from email.message import Message
from email.parser import Parser
from typing import Any

from nodesmith.model.apimachinery.labels import (
    CAPACITY_TYPE,
    DO_NOT_SYNC_TAINTS,
    is_label_value,
    kubelet_may_set,
)
from nodesmith.model.apimachinery.taints import UNREGISTERED, Taint
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.nodespec import write_taints
from nodesmith.model.nodeclasses.devices import CUSTOM
from nodesmith.model.nodeclasses.kubelet import write_kubelet
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import ClusterInfo

USER_DATA_LIMIT_BYTES = 16_384
NODE_CONFIG_TYPE = "application/node.eks.aws"
_SHELL_TYPE = 'text/x-shellscript; charset="us-ascii"'
_NODE_CONFIG = re.compile(r"""^[ \t{]*["']?apiVersion["']?\s*:\s*["']?node\.eks\.aws/""", re.MULTILINE)
_MIME_START = re.compile(r"(?:[\w-]+:.*\n(?:[ \t].*\n)*)*?(?:MIME-Version|Content-Type):", re.IGNORECASE)


class MalformedUserData(ValueError):
    """User data that starts like a MIME document but is not one."""


def user_data(
    claim: NodeClaim, capacity_type: str, max_pods: int, nodeclass: EC2NodeClass, cluster: ClusterInfo
) -> str:
    """Return the plain text of the user data. For family Custom, this is the NodeClass's own, verbatim.

    Raises MalformedUserData.
    """
    if nodeclass.ami_family == CUSTOM:
        return nodeclass.user_data
    ours = node_config(claim, capacity_type, max_pods, nodeclass, cluster)
    document = json.dumps(ours, indent=2, sort_keys=True)
    return _mime([*own_parts(nodeclass.user_data), f"Content-Type: {NODE_CONFIG_TYPE}\n\n{document}\n"])


def node_config(
    claim: NodeClaim, capacity_type: str, max_pods: int, nodeclass: EC2NodeClass, cluster: ClusterInfo
) -> dict[str, Any]:
    """Return nodeadm's NodeConfig (node.eks.aws/v1alpha1) for one claim."""
    spec: dict[str, Any] = {
        "cluster": {
            "name": cluster.name,
            "apiServerEndpoint": cluster.endpoint,
            "certificateAuthority": cluster.ca_bundle,
            "cidr": cluster.service_cidr,
        },
        "kubelet": {
            "config": {
                **({"clusterDNS": [cluster.dns_ip]} if cluster.dns_ip else {}),
                **write_kubelet(nodeclass.kubelet),
                "maxPods": max_pods,
                "registerWithTaints": write_taints(registered_taints(claim)),
            },
            "flags": [f"--node-labels={_label_list(node_labels(claim, capacity_type))}"],
        },
    }
    if nodeclass.instance_store_policy:
        spec["instance"] = {"localStorage": {"strategy": nodeclass.instance_store_policy}}
    return {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}


def node_labels(claim: NodeClaim, capacity_type: str) -> dict[str, str]:
    """Return the labels that the kubelet sets itself. NodeRestriction forbids it labels in Kubernetes' own domains.

    Invalid label values are left out: the kubelet would read their quotes and commas as further flags.
    """
    labels = {**claim.labels, CAPACITY_TYPE: capacity_type, DO_NOT_SYNC_TAINTS: "true"}
    return {
        key: labels[key] for key in sorted(labels) if kubelet_may_set(key) and is_label_value(labels[key])
    }


def registered_taints(claim: NodeClaim) -> list[Taint]:
    """Return the taints that the node registers with, each once. `UNREGISTERED` keeps pods off until registration."""
    taints = {taint.identity: taint for taint in (*claim.taints, *claim.startup_taints, UNREGISTERED)}
    return [taints[identity] for identity in sorted(taints)]


def own_parts(text: str) -> list[str]:
    """Split the NodeClass's user data into MIME parts, each with its headers. Raises MalformedUserData."""
    text = text.replace("\r\n", "\n")
    if not text.strip():
        return []
    if _MIME_START.match(text.lstrip("\n")):
        try:
            return _mime_parts(Parser().parsestr(text.lstrip("\n")))
        except RecursionError:
            raise MalformedUserData("the MIME document's parts are nested too deeply") from None
    is_config = not text.startswith("#!") and _NODE_CONFIG.search(text)
    return [f"Content-Type: {NODE_CONFIG_TYPE if is_config else _SHELL_TYPE}\n\n{text}"]


def _mime_parts(message: Message) -> list[str]:
    if not message.is_multipart():
        if message.get_content_maintype() == "multipart":
            raise MalformedUserData("the MIME document has no parts: its boundary occurs nowhere in the body")
        return [_part_text(message)]
    return [_part_text(part) for part in message.get_payload() if isinstance(part, Message)]


def _part_text(part: Message) -> str:
    if part.is_multipart():
        return part.as_string()
    headers = [f"{name}: {value}" for name, value in part.items() if name.lower() != "mime-version"]
    return "\n".join([*headers, "", str(part.get_payload())])


def _mime(parts: list[str]) -> str:
    boundary = "//"
    while any(f"--{boundary}" in part for part in parts):
        boundary += "/"
    head = f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="{boundary}"\n'
    body = "".join(f"\n--{boundary}\n{part}" for part in parts)
    return f"{head}{body}\n--{boundary}--\n"


def _label_list(labels: Mapping[str, str]) -> str:
    return '"' + ",".join(f"{key}={value}" for key, value in labels.items()) + '"'
