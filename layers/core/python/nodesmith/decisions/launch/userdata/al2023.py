"""User data of Amazon Linux 2023: a MIME document for nodeadm and cloud-init.

The NodeClass's own parts come first and nodesmith's last, because nodeadm merges NodeConfigs in order and the last one
wins. nodesmith writes JSON, which every YAML parser reads. Only validation reads the user's NodeConfigs: parsing YAML
takes a library, and longer than a launch should.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from email.message import Message
from typing import Any

from nodesmith.decisions.launch.userdata.bootstrapscripts import (
    CLOUD_INIT_TYPES,
    SHELL,
    is_mime,
    mime,
    mime_parts,
    part,
)
from nodesmith.decisions.launch.userdata.starting import MalformedUserData, Start, line_at
from nodesmith.model.karpenter.nodeclaims import write_taints
from nodesmith.model.nodeclasses.instancesettings import write_kubelet

NODE_CONFIG_TYPE = "application/node.eks.aws"
_NODE_CONFIG = re.compile(r"""^[ \t{]*["']?apiVersion["']?\s*:\s*["']?node\.eks\.aws/""", re.MULTILINE)


def al2023_user_data(start: Start) -> str:
    """Return the user data. Raises MalformedUserData."""
    document = json.dumps(node_config(start), indent=2, sort_keys=True)
    pulling = [part(SHELL, pulling_script(start.images))] if start.images else []
    return mime([*own_parts(start.nodeclass.user_data), *pulling, part(NODE_CONFIG_TYPE, f"{document}\n")])


_ECR = re.compile(r"[0-9]{12}\.dkr[.-]ecr(?:-fips)?\.([a-z0-9-]+)\.(?:amazonaws|on)\.", re.ASCII)
_PULLING = """#!/bin/bash
# Pulls the images of the CapacityBuffer. nodeadm starts the kubelet when this script has ended.
systemctl start containerd || exit 0
for _ in $(seq 30); do ctr version >/dev/null 2>&1 && break; sleep 1; done
pull() {
  local login=()
  if [ -n "$2" ]; then login=(--user "AWS:$(aws ecr get-login-password --region "$2")"); fi
  timeout 300 ctr --namespace k8s.io images pull --hosts-dir /etc/containerd/certs.d "${login[@]}" "$1" >/dev/null \\
    || echo "nodesmith: image $1 was not pulled" >&2
}
"""


def pulling_script(images: Sequence[str]) -> str:
    """Return a script that pulls images by their full names, all at once and for five minutes at most.

    cloud-init runs it at the first boot only. An image that cannot be pulled does not keep the node from joining.
    """
    regions = (found[1] if (found := _ECR.match(image)) else "" for image in images)
    pulls = [f"pull '{image}' '{region}' &" for image, region in zip(images, regions, strict=True)]
    return "\n".join([_PULLING.rstrip("\n"), *pulls, "wait", "exit 0", ""])


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


_A_MAP, _NULL = "{}", "tag:yaml.org,2002:null"
_API_VERSION = "node.eks.aws/v1alpha1"


def check_node_configs(text: str) -> None:
    """Raise MalformedUserData for the first NodeConfig that nodeadm could not read."""
    for config in _node_configs(text):
        begins = line_at(text, max(0, text.find(config.strip("\n"))))
        before = begins - 1 - (len(config) - len(config.lstrip("\n")))
        fields = _fields(config, before)
        for name, wanted in (("apiVersion", _API_VERSION), ("kind", "NodeConfig")):
            value, line = fields.get(name, (None, 0))
            if value != wanted:
                found = "missing" if value is None else repr(value)
                raise MalformedUserData(
                    f"{name} of the NodeConfig is {found}: write {wanted}", line or begins
                )
        spec, line = fields.get("spec", (_A_MAP, 0))
        if spec != _A_MAP:
            raise MalformedUserData("spec of the NodeConfig must be a map", line)


def _node_configs(text: str) -> Iterator[str]:
    for outer in own_parts(text):
        yield from (_payload(each) for each in outer.walk() if each.get_content_type() == NODE_CONFIG_TYPE)


def _payload(message: Message) -> str:
    payload = message.get_payload(decode=True)
    return payload.decode(errors="replace") if isinstance(payload, bytes) else str(message.get_payload())


def _fields(config: str, lines_before: int) -> dict[str, tuple[str, int]]:
    """Return the top-level fields, each with its text (`_A_MAP` for a map or null) and its line.

    Only the nodes are composed. To construct values could take any amount of memory: merge keys multiply.
    """
    import yaml  # only NodeClasses with a NodeConfig of their own need it

    try:
        node = yaml.compose(config, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = lines_before + mark.line + 1 if mark else 0
        raise MalformedUserData(f"the NodeConfig is not YAML: {error.problem}", line) from None
    except (yaml.YAMLError, ValueError) as error:
        raise MalformedUserData(f"the NodeConfig is not YAML: {error}") from None
    except RecursionError:
        raise MalformedUserData("the NodeConfig is nested too deeply") from None
    if not isinstance(node, yaml.MappingNode):
        raise MalformedUserData("the NodeConfig must be a map", lines_before + 1)
    return {
        str(key.value): (
            _A_MAP if isinstance(value, yaml.MappingNode) or value.tag == _NULL else str(value.value)[:40],
            lines_before + key.start_mark.line + 1,
        )
        for key, value in node.value
    }
