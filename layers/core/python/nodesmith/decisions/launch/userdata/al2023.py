"""User data of Amazon Linux 2023: a MIME document for nodeadm and cloud-init.

The NodeClass's own parts come first and nodesmith's last, because nodeadm merges NodeConfigs in order and the last one
wins. nodesmith writes JSON, which every YAML parser reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from email.message import Message
from typing import Any

from nodesmith.decisions.launch.userdata.mime import CLOUD_INIT_TYPES, SHELL, is_mime, mime, mime_parts, part
from nodesmith.decisions.launch.userdata.starting import Start
from nodesmith.model.karpenter.nodeclaims import write_taints
from nodesmith.model.nodeclasses.kubelet import write_kubelet

NODE_CONFIG_TYPE = "application/node.eks.aws"
_NODE_CONFIG = re.compile(r"""^[ \t{]*["']?apiVersion["']?\s*:\s*["']?node\.eks\.aws/""", re.MULTILINE)


def al2023_user_data(start: Start) -> str:
    """Return the user data. Raises MalformedUserData."""
    document = json.dumps(node_config(start), indent=2, sort_keys=True)
    return mime([*own_parts(start.nodeclass.user_data), part(NODE_CONFIG_TYPE, f"{document}\n")])


def node_config(start: Start) -> dict[str, Any]:
    """Return nodeadm's NodeConfig (node.eks.aws/v1alpha1) for one claim."""
    cluster, dns = start.cluster, start.cluster.dns_ip
    spec: dict[str, Any] = {
        "cluster": {
            "name": cluster.name,
            "apiServerEndpoint": cluster.endpoint,
            "certificateAuthority": cluster.ca_bundle,
            "cidr": cluster.service_cidr,
        },
        "kubelet": {
            "config": {
                **({"clusterDNS": [dns]} if dns else {}),
                **write_kubelet(start.kubelet),
                "maxPods": start.max_pods,
                "registerWithTaints": write_taints(start.taints),
            },
            "flags": [f"--node-labels={_label_list(start.labels)}"],
        },
    }
    if start.nodeclass.instance_store_policy:
        spec["instance"] = {"localStorage": {"strategy": start.nodeclass.instance_store_policy}}
    return {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}


def own_parts(text: str) -> list[Message]:
    """Return the NodeClass's user data as MIME parts. Raises MalformedUserData."""
    text = text.replace("\r\n", "\n")
    if not text.strip():
        return []
    if is_mime(text):
        return mime_parts(text, CLOUD_INIT_TYPES | {NODE_CONFIG_TYPE})
    is_config = not text.startswith("#!") and _NODE_CONFIG.search(text)
    return [part(NODE_CONFIG_TYPE if is_config else SHELL, text)]


def _label_list(labels: Mapping[str, str]) -> str:
    return '"' + ",".join(f"{key}={value}" for key, value in labels.items()) + '"'
