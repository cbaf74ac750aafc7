"""User data of the families that read a configuration: NodeConfigs of Amazon Linux 2023, settings of Bottlerocket.

Amazon Linux 2023 has a MIME document for nodeadm and cloud-init. The NodeClass's own parts come first and nodesmith's
last, because nodeadm merges NodeConfigs in order and the last one wins. nodesmith writes JSON, which every YAML parser
reads. Only validation reads the user's NodeConfigs: parsing YAML takes a library, and longer than a launch should.

Bottlerocket has settings in TOML, the user's with nodesmith's under `settings.kubernetes`.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from email.message import Message
from typing import Any

from nodesmith.decisions.launch.userdata.bootstrapscripts import (
    CLOUD_INIT_TYPES,
    SHELL,
    bare_part,
    is_mime,
    mime,
    mime_parts,
    part,
)
from nodesmith.decisions.launch.userdata.starting import PULLING_POD, MalformedUserData, Start, line_at
from nodesmith.model.apimachinery.quantities import format_resources
from nodesmith.model.karpenter.nodeclaims import write_taints
from nodesmith.model.nodeclasses.instancesettings import write_kubelet

NODE_CONFIG_TYPE = "application/node.eks.aws"
_NODE_CONFIG = re.compile(r"""(?:^|,)[ \t{]*["']?apiVersion["']?\s*:\s*["']?node\.eks\.aws/""", re.MULTILINE)


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
    regions = (match[1] if (match := _ECR.match(image)) else "" for image in images)
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
    return [part(NODE_CONFIG_TYPE, text) if is_config else bare_part(text)]


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
        for name, expected in (("apiVersion", _API_VERSION), ("kind", "NodeConfig")):
            value, line = fields.get(name, (None, 0))
            if value != expected:
                actual = "missing" if value is None else repr(value)
                raise MalformedUserData(
                    f"{name} of the NodeConfig is {actual}: write {expected}", line or begins
                )
        spec, line = fields.get("spec", (_A_MAP, 0))
        if spec != _A_MAP:
            raise MalformedUserData("spec of the NodeConfig must be a map", line)


def _node_configs(text: str) -> Iterator[str]:
    for outer in own_parts(text):
        yield from (
            _payload(message) for message in outer.walk() if message.get_content_type() == NODE_CONFIG_TYPE
        )


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


_NO_COMMAND = "/nodesmith.dev/no-such-command"
_MOUNT = "000-mount-instance-storage"
_NAMED_DIRECTORIES = ("/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods")
_BINDS_ALL = (1, 46, 0)
"""The first version that binds all directories itself; earlier ones need their names."""
_VERSION = re.compile(r"v([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})")
_PLACE = re.compile(r" ?\(at (?:line ([0-9]+), column [0-9]+|end of document)\)$")
_NAME = re.compile(r"[\w-]+")
_DEEP = "its tables are nested too deeply"


def bottlerocket_user_data(start: Start) -> str:
    """Return the user's settings with those that the node needs; these win. Raises MalformedUserData."""
    import tomli_w  # only NodeClasses of this family need it

    text = start.nodeclass.user_data
    document = _read_toml(text)
    settings = _toml_table(document, "settings", text)
    kubernetes = _toml_table(settings, "kubernetes", text, "settings.")
    labels = _toml_table(kubernetes, "node-labels", text, "settings.kubernetes.")
    kubernetes.update(kubernetes_settings(start))
    kubernetes["node-labels"] = labels | start.labels
    if start.images:
        pods = _toml_table(kubernetes, "static-pods", text, "settings.kubernetes.")
        pods[PULLING_POD] = {"enabled": True, "manifest": _pulling(start.images)}
    if start.joins_disks:
        _toml_table(settings, "bootstrap-commands", text, "settings.")[_MOUNT] = _mounting(start)
    try:
        return tomli_w.dumps(document)
    except RecursionError:
        raise MalformedUserData(_DEEP) from None


def _pulling(images: Sequence[str]) -> str:
    """Return the manifest of a static pod that makes the kubelet pull images, in base64.

    Bottlerocket has no shell. The kubelet pulls with its own credentials and mirrors. Nothing of an image runs: no
    image has the command, so each container ends at once, and with it the pod.
    """
    least = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "runAsUser": 65534,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    containers = [
        {"name": f"image-{n}", "image": image, "command": [_NO_COMMAND], "securityContext": least}
        for n, image in enumerate(images)
    ]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": PULLING_POD, "namespace": "kube-system"},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "enableServiceLinks": False,
            "tolerations": [{"operator": "Exists"}],
            "containers": containers,
        },
    }
    return base64.b64encode(json.dumps(pod, sort_keys=True).encode()).decode()


def kubernetes_settings(start: Start) -> dict[str, Any]:
    """Return the settings under `settings.kubernetes`, without labels, which are added to the user's."""
    cluster, kubelet, dns = start.cluster, start.kubelet, start.dns_addresses
    high, low = kubelet.image_gc_high_threshold_percent, kubelet.image_gc_low_threshold_percent
    written: dict[str, Any] = {
        "api-server": cluster.endpoint,
        "cluster-certificate": cluster.ca_bundle,
        "cluster-name": cluster.name,
        "cluster-dns-ip": dns[0] if len(dns) == 1 else [*dns],
        "node-taints": _taints(start),
        "max-pods": start.max_pods,
        "system-reserved": format_resources(kubelet.system_reserved),
        "kube-reserved": format_resources(kubelet.kube_reserved),
        "eviction-hard": dict(kubelet.eviction_hard),
        "eviction-soft": dict(kubelet.eviction_soft),
        "eviction-soft-grace-period": dict(kubelet.eviction_soft_grace_period),
        "eviction-max-pod-grace-period": kubelet.eviction_max_pod_grace_period,
        "image-gc-high-threshold-percent": None if high is None else str(high),
        "image-gc-low-threshold-percent": None if low is None else str(low),
        "cpu-cfs-quota-enforced": kubelet.cpu_cfs_quota,
    }
    return {name: value for name, value in written.items() if value not in (None, "", {}, [])}


def _taints(start: Start) -> dict[str, list[str]]:
    taints: dict[str, list[str]] = {}
    for taint in start.taints:
        taints.setdefault(taint.key, []).append(f"{taint.value}:{taint.effect}")
    return taints


def _mounting(start: Start) -> dict[str, Any]:
    """Return the bootstrap command that puts pods' storage on the instance store disks."""
    directories = () if _bottlerocket_version(start) >= _BINDS_ALL else ("--dirs", *_NAMED_DIRECTORIES)
    storage = ["apiclient", "ephemeral-storage"]
    return {
        "commands": [[*storage, "init"], [*storage, "bind", *directories]],
        "essential": True,
        "mode": "always",
    }


def _bottlerocket_version(start: Start) -> tuple[int, ...]:
    """Return the version of the node's image: of the alias if it has one, else by the image's name; () if unknown."""
    aliases = (term.alias for term in start.nodeclass.ami_selector_terms if term.alias)
    alias_versions = (f"v{alias.partition('@')[2].removeprefix('v')}" for alias in aliases)
    match = next(filter(None, map(_VERSION.search, (*alias_versions, start.image_name))), None)
    return tuple(map(int, match.groups())) if match else ()


def _read_toml(text: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except RecursionError:
        raise MalformedUserData(_DEEP) from None
    except ValueError as error:  # besides TOMLDecodeError, for numbers with thousands of digits
        place = _PLACE.search(str(error))
        line = 0 if place is None else int(place[1] or line_at(text, len(text)))
        raise MalformedUserData(f"it is not TOML: {_PLACE.sub('', str(error))}", line) from None


def _toml_table(within: dict[str, Any], name: str, text: str, path: str = "") -> dict[str, Any]:
    """Return a table of the document, created if it is missing. Raises MalformedUserData if it is something else."""
    table = within.setdefault(name, {})
    if not isinstance(table, dict):
        raise MalformedUserData(
            f"{path}{name} must be a table, but is {_toml_type(table)}", _line_of(name, text)
        )
    return table


def _line_of(name: str, text: str) -> int:
    """Return the first line whose key or table header has this name, 0 if there is none."""
    for number, line in enumerate(text.split("\n"), 1):
        if name in _NAME.findall(line.partition("=")[0].partition("#")[0]):
            return number
    return 0


def _toml_type(value: object) -> str:
    return "an array" if isinstance(value, list) else f"the value {str(value)[:40]!r}"
