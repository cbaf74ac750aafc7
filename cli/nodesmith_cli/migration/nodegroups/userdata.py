"""User data of groups: settings that nodesmith makes itself are removed, and the rest is carried over.

nodesmith merges an EC2NodeClass's user data with what a node needs to join. So the call that joins the node is removed,
and labels, taints and kubelet settings move to where decisions read them.
"""

from __future__ import annotations

import base64
import binascii
import re
import shlex
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from nodesmith.decisions.launch.userdata.bootstrapscripts import is_mime, mime, mime_parts, part
from nodesmith.decisions.launch.userdata.configurations import NODE_CONFIG_TYPE, own_parts
from nodesmith.decisions.launch.userdata.starting import MalformedUserData

_MOST_BYTES = 2**20
_MISSHAPEN = (AttributeError, KeyError, TypeError)
"""What reading settings of unexpected types raises."""
_BOOTSTRAP = re.compile(
    r"^(?P<indent>[ \t]*)(?:exec[ \t]+|sudo[ \t]+)*(?:(?:/bin/)?bash[ \t]+(?:-\w+[ \t]+)*)?"
    r"(?P<call>/etc/eks/bootstrap\.sh\b(?:\\\r?\n|[^\n])*)",
    re.MULTILINE,
)
_WINDOWS_CALL = re.compile(
    r"^[ \t]*&?[ \t]*(?:\$EKSBootstrapScriptFile|\"?\$EKSBinDir[^\n\"]*\"?|[^\n]*Start-EKSBootstrap\.ps1)"
    r"[ \t\"]+-[^\n]*$",
    re.MULTILINE | re.IGNORECASE,
)
_WINDOWS_FLAGS = re.compile(
    r"-KubeletExtraArgs\s+(?:'(?P<single>[^']*)'|\"(?P<double>[^\"]*)\")", re.IGNORECASE
)
_OPERATORS = frozenset({"&&", "||", ";", "|", "&"})
_SET_BY_US = frozenset(
    "--b64-cluster-ca --apiserver-endpoint --dns-cluster-ip --ip-family --service-ipv6-cidr --container-runtime "
    "--use-max-pods --cluster-id".split()
)
_SAID_IN_CALL = ": # nodesmith calls /etc/eks/bootstrap.sh after this script"
_RESERVED = {"--kube-reserved": "kubeReserved", "--system-reserved": "systemReserved"}
_NUMBERS = {"--max-pods": "maxPods", "--pods-per-core": "podsPerCore"}
_OF_BOTTLEROCKET = {
    "max-pods": "maxPods",
    "kube-reserved": "kubeReserved",
    "system-reserved": "systemReserved",
    "eviction-hard": "evictionHard",
    "cpu-cfs-quota-enforced": "cpuCFSQuota",
}


@dataclass(slots=True)
class Carried:
    """User data as it is carried over, and what moved out of it. `notes` are sentences about what else changed."""

    text: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    taints: list[dict[str, str]] = field(default_factory=list)
    kubelet: dict[str, Any] = field(default_factory=dict)
    joins_disks: bool = False
    notes: list[str] = field(default_factory=list)


def decoded(encoded: str) -> str:
    """Return user data as text, unpacked if it is compressed. Raises MalformedUserData."""
    try:
        data = base64.b64decode(encoded, validate=False)
        if data[:2] == b"\x1f\x8b":
            data = zlib.decompressobj(wbits=31).decompress(data, _MOST_BYTES)
        return data.decode()
    except (binascii.Error, zlib.error, UnicodeDecodeError) as error:
        raise MalformedUserData(f"it cannot be decoded: {error}") from None


def carried(text: str, family: str) -> Carried:
    """Return the converted user data for a family. Raises MalformedUserData if it cannot be read."""
    if not text.strip():
        return Carried()
    try:
        return _carried(text, family)
    except _MISSHAPEN:
        raise MalformedUserData("a setting in it has another type than it should have") from None


def _carried(text: str, family: str) -> Carried:
    match family:
        case "AL2":
            return _of_al2(text)
        case "AL2023":
            return _of_al2023(text)
        case "Bottlerocket":
            return _of_bottlerocket(text)
        case "Custom":
            return Carried(
                text, notes=["it must join the node and register it with NodePool's taints itself"]
            )
        case _:
            return _of_windows(text)


def _of_al2(text: str) -> Carried:
    user_data = Carried()
    if not is_mime(text):
        user_data.text = _without_call(text, user_data)
        return user_data
    parts = mime_parts(text.replace("\r\n", "\n"))
    for mime_part in parts:
        if not mime_part.is_multipart() and mime_part.get_content_maintype() == "text":
            payload = str(mime_part.get_payload())
            shorter = _without_call(payload, user_data)
            if shorter != payload:
                mime_part.set_payload(shorter)
    user_data.text = mime(parts) if user_data.notes else text
    return user_data


def _without_call(script: str, user_data: Carried) -> str:
    def replaced(match: re.Match[str]) -> str:
        _read_call(match["call"], user_data)
        return f"{match['indent']}{_SAID_IN_CALL}"

    shorter = _BOOTSTRAP.sub(replaced, script)
    if shorter != script:
        user_data.notes.insert(
            0, "nodesmith calls /etc/eks/bootstrap.sh after the script, so its call is removed"
        )
        return "" if _is_empty(shorter) else shorter
    return script


def _is_empty(script: str) -> bool:
    """Return whether a script does nothing: comments, `set` and the removed call alone."""
    lines = (line.strip() for line in script.splitlines())
    return all(not line or line.startswith(("#", ": #", "set ")) for line in lines)


def _read_call(call: str, user_data: Carried) -> None:
    try:
        words = shlex.split(call.replace("\\\r\n", " ").replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise MalformedUserData(f"the arguments of /etc/eks/bootstrap.sh cannot be read: {error}") from None
    end = next((n for n, word in enumerate(words) if word in _OPERATORS), len(words))
    if end < len(words):
        user_data.notes.append(f"what follows the call on its line is left out: {' '.join(words[end:])}")
    for name, value in _options(words[1:end]):
        if name == "--kubelet-extra-args":
            _read_flags(value, user_data)
        elif name == "--local-disks":
            user_data.joins_disks = value == "raid0"
            if value != "raid0":
                user_data.notes.append(f"--local-disks {value} has no equal, only raid0 has")
        elif name and name not in _SET_BY_US:
            user_data.notes.append(f"{name} of /etc/eks/bootstrap.sh has no equal")


def _options(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield options with their values, and arguments under an empty name. The value of kubelet flags is flags."""
    name = ""
    for word in words:
        if word.startswith("--") and name != "--kubelet-extra-args":
            if name:
                yield name, ""
            name, is_whole, value = word.partition("=")
            if is_whole:
                yield name, value
                name = ""
        else:
            yield name, word
            name = ""
    if name:
        yield name, ""


def _read_flags(text: str, user_data: Carried) -> None:
    """Move the kubelet's flags to labels, taints and kubelet settings."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise MalformedUserData(f"the kubelet's flags cannot be read: {error}") from None
    for name, value in _options(words):
        if "$" in value:
            user_data.notes.append(
                f"{name} depends on a variable of the script ({value}): set it in the NodePool"
            )
        elif name == "--node-labels":
            user_data.labels |= dict(_pairs(value))
        elif name == "--register-with-taints":
            user_data.taints += filter(None, map(_taint, value.split(",")))
        elif name in _NUMBERS and value.isdigit():
            user_data.kubelet[_NUMBERS[name]] = int(value)
        elif name in _RESERVED:
            user_data.kubelet[_RESERVED[name]] = dict(_pairs(value))
        elif name == "--eviction-hard":
            signals = (each.partition("<") for each in value.split(","))
            user_data.kubelet["evictionHard"] = {
                signal: limit for signal, is_less, limit in signals if is_less
            }
        elif name:
            user_data.notes.append(f"the kubelet's flag {name} has no equal")


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for pair in text.strip("\"' ").split(","):
        key, is_pair, value = pair.strip().partition("=")
        if key and is_pair:
            yield key, value


def _taint(text: str) -> dict[str, str] | None:
    """Return the taint of a flag: key=value:effect, or key:effect."""
    pair, has_effect, effect = text.strip("\"' ").rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, **({"value": value} if value else {}), "effect": effect} if has_effect else None


def _of_al2023(text: str) -> Carried:
    user_data = Carried()
    parts = own_parts(text)
    kept, is_changed = [], False
    for mime_part in parts:
        if mime_part.get_content_type() != NODE_CONFIG_TYPE:
            kept.append(mime_part)
            continue
        config = _node_config(str(mime_part.get_payload()))
        if config is None:
            user_data.notes.append(
                "a NodeConfig with aliases is kept as it is: set its labels and taints in the NodePool"
            )
            kept.append(mime_part)
            continue
        is_changed = _strip(config, user_data) or is_changed
        if config.get("spec"):
            kept.append(part(NODE_CONFIG_TYPE, yaml.safe_dump(config, sort_keys=False)))
    if "nodeadm init" in text:
        user_data.notes.append("it runs nodeadm itself, which EKS's images do after it: remove that call")
    if not is_changed:
        user_data.text = text
    elif len(kept) == 1 and not is_mime(text):
        user_data.text = str(kept[0].get_payload())
    else:
        user_data.text = mime(kept) if kept else ""
    if is_changed:
        user_data.notes.insert(0, "nodesmith's own NodeConfig sets what joins the node, so that is removed")
    return user_data


def _node_config(text: str) -> dict[str, Any] | None:
    """Return a NodeConfig, or None if it has aliases, which could multiply. Raises MalformedUserData."""
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
            return None
        config = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise MalformedUserData(f"the NodeConfig is not YAML: {error}") from None
    if not isinstance(config, dict):
        raise MalformedUserData("the NodeConfig is not a map")
    return config


def _strip(config: dict[str, Any], user_data: Carried) -> bool:
    """Move what nodesmith sets out of a NodeConfig. Returns whether anything moved."""
    spec = config.get("spec")
    if not isinstance(spec, dict):
        return False
    moved = spec.pop("cluster", None) is not None
    kubelet = spec.get("kubelet")
    if isinstance(kubelet, dict):
        settings = kubelet.pop("config", None)
        if isinstance(settings, dict):
            moved = True
            user_data.taints += [_plain_taint(t) for t in settings.pop("registerWithTaints", None) or ()]
            user_data.kubelet |= settings
        flags = [str(item) for item in kubelet.pop("flags", None) or ()]
        moved = moved or bool(flags)
        ours = ("--node-labels", "--register-with-taints", "--max-pods")
        for flag in (candidate for candidate in flags if candidate.startswith(ours)):
            _read_flags(flag.replace('"', ""), user_data)
        rest = [other for other in flags if not other.startswith(ours)]
        if rest:
            kubelet["flags"] = rest
        if not kubelet:
            del spec["kubelet"]
    strategy = ((spec.get("instance") or {}).get("localStorage") or {}).get("strategy")
    if strategy == "RAID0":
        user_data.joins_disks, moved = True, True
        del spec["instance"]["localStorage"]
        if not spec["instance"]:
            del spec["instance"]
    return moved


def _plain_taint(taint: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(taint[name]) for name in ("key", "value", "effect") if taint.get(name)}


def _of_bottlerocket(text: str) -> Carried:
    """Copy labels, taints and kubelet settings. They also stay in the text: nodesmith's settings win when merged."""
    import tomllib

    user_data = Carried(text)
    try:
        kubernetes = (tomllib.loads(text).get("settings") or {}).get("kubernetes") or {}
    except (ValueError, RecursionError, AttributeError) as error:
        raise MalformedUserData(f"it is not TOML: {error}") from None
    if not isinstance(kubernetes, dict):
        raise MalformedUserData("settings.kubernetes is not a table")
    user_data.labels = {str(k): str(v) for k, v in (kubernetes.get("node-labels") or {}).items()}
    for key, values in (kubernetes.get("node-taints") or {}).items():
        for item in [values] if isinstance(values, str) else values:
            value, _, effect = str(item).rpartition(":")
            user_data.taints.append({"key": key, **({"value": value} if value else {}), "effect": effect})
    for name, ours in _OF_BOTTLEROCKET.items():
        if name in kubernetes:
            value = kubernetes[name]
            user_data.kubelet[ours] = (
                {k: str(v) for k, v in value.items()} if isinstance(value, dict) else value
            )
    return user_data


def _of_windows(text: str) -> Carried:
    user_data = Carried()
    for call in _WINDOWS_CALL.finditer(text):
        flags = _WINDOWS_FLAGS.search(call[0])
        if flags:
            _read_flags(flags["single"] or flags["double"] or "", user_data)
    user_data.text = _WINDOWS_CALL.sub("", text)
    if user_data.text != text:
        user_data.notes.insert(0, "nodesmith calls EKS's bootstrap script, so its call is removed")
    return user_data
