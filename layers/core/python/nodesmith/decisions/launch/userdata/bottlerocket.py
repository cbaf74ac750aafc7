"""User data of Bottlerocket: settings in TOML, the user's with nodesmith's under `settings.kubernetes`."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from typing import Any

from nodesmith.decisions.launch.userdata.starting import PULLING_POD, MalformedUserData, Start, line_at
from nodesmith.model.apimachinery.quantities import format_resources

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
    document = _read(text)
    settings = _table(document, "settings", text)
    kubernetes = _table(settings, "kubernetes", text, "settings.")
    labels = _table(kubernetes, "node-labels", text, "settings.kubernetes.")
    kubernetes.update(kubernetes_settings(start))
    kubernetes["node-labels"] = labels | start.labels
    if start.images:
        pods = _table(kubernetes, "static-pods", text, "settings.kubernetes.")
        pods[PULLING_POD] = {"enabled": True, "manifest": _pulling(start.images)}
    if start.joins_disks:
        _table(settings, "bootstrap-commands", text, "settings.")[_MOUNT] = _mounting(start)
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
    directories = () if _version(start) >= _BINDS_ALL else ("--dirs", *_NAMED_DIRECTORIES)
    storage = ["apiclient", "ephemeral-storage"]
    return {
        "commands": [[*storage, "init"], [*storage, "bind", *directories]],
        "essential": True,
        "mode": "always",
    }


def _version(start: Start) -> tuple[int, ...]:
    """Return the version of the node's image: of the alias if it has one, else by the image's name; () if unknown."""
    aliases = (term.alias for term in start.nodeclass.ami_selector_terms if term.alias)
    known = (f"v{alias.partition('@')[2].removeprefix('v')}" for alias in aliases)
    found = next(filter(None, map(_VERSION.search, (*known, start.image_name))), None)
    return tuple(map(int, found.groups())) if found else ()


def _read(text: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except RecursionError:
        raise MalformedUserData(_DEEP) from None
    except ValueError as error:  # besides TOMLDecodeError, for numbers with thousands of digits
        place = _PLACE.search(str(error))
        line = 0 if place is None else int(place[1] or line_at(text, len(text)))
        raise MalformedUserData(f"it is not TOML: {_PLACE.sub('', str(error))}", line) from None


def _table(within: dict[str, Any], name: str, text: str, path: str = "") -> dict[str, Any]:
    """Return a table of the document, created if it is missing. Raises MalformedUserData if it is something else."""
    table = within.setdefault(name, {})
    if not isinstance(table, dict):
        raise MalformedUserData(f"{path}{name} must be a table, but is {_kind(table)}", _line_of(name, text))
    return table


def _line_of(name: str, text: str) -> int:
    """Return the first line whose key or table header has this name, 0 if there is none."""
    for number, line in enumerate(text.split("\n"), 1):
        if name in _NAME.findall(line.partition("=")[0].partition("#")[0]):
            return number
    return 0


def _kind(value: object) -> str:
    return "an array" if isinstance(value, list) else f"the value {str(value)[:40]!r}"
