"""User data of the families whose nodes start with EKS's bootstrap script: Amazon Linux 2 and Windows.

Amazon Linux 2 has a MIME document for cloud-init, which runs the parts in their order; the last part calls the script.
Windows has a PowerShell script that runs the user's lines before the call. Both take the kubelet's flags as one
argument. No library writes PowerShell, so everything that varies is quoted here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from email.message import Message
from email.parser import Parser

from nodesmith.decisions.launch.userdata.starting import MalformedUserData, Start, line_at
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.apimachinery.quantities import format_resources

SHELL = 'text/x-shellscript; charset="us-ascii"'
_MIME_START = re.compile(r"(?:[\w-]+:.*\n(?:[ \t].*\n)*)*?(?:MIME-Version|Content-Type):", re.IGNORECASE)
_HANDLERS = "text/part-handler"
_DEEP = "the MIME document's parts are nested too deeply"
CLOUD_INIT_TYPES = frozenset(
    {
        _HANDLERS,
        "text/cloud-boothook",
        "text/cloud-config",
        "text/cloud-config-archive",
        "text/cloud-config-jsonp",
        "text/jinja2",
        "text/plain",
        "text/upstart-job",
        "text/x-include-once-url",
        "text/x-include-url",
        "text/x-shellscript",
        "text/x-shellscript-per-boot",
        "text/x-shellscript-per-instance",
        "text/x-shellscript-per-once",
    }
)
"""The types of parts that cloud-init handles itself."""
_USUAL = "text/x-shellscript, text/cloud-config"
_ENVELOPES = frozenset(
    "application/gzip application/gzip-compressed application/gzipped application/x-compress application/x-compressed "
    "application/x-gunzip application/x-gzip application/x-gzip-compressed application/zlib application/x-zlib "
    "application/octet-stream message/rfc822 text/x-not-multipart text/x-not-shellscript".split()
)
"""Types whose content decides what cloud-init makes of a part."""


def is_mime(text: str) -> bool:
    """Return whether user data is a MIME document, whichever header comes first."""
    return _MIME_START.match(text.lstrip("\r\n")) is not None


def part(kind: str, payload: str) -> Message:
    """Return a part with this Content-Type."""
    message = Message()
    message["Content-Type"] = kind
    message.set_payload(payload)
    return message


def bare_part(text: str) -> Message:
    """Return user data that is no MIME document as a part: a cloud-config by its first line, else a script."""
    is_config = text.partition("\n")[0].rstrip() == "#cloud-config"
    return part("text/cloud-config" if is_config else SHELL, text)


def mime_parts(text: str, known_types: frozenset[str] = CLOUD_INIT_TYPES) -> list[Message]:
    """Return the parts of a MIME document. Raises MalformedUserData for one that nothing on the node would read.

    `known_types` are the types that something reads. A document that has its own handlers may have any type.
    """
    try:
        parts = _top_parts(Parser().parsestr(text.lstrip("\n")))
        kinds = [message_part.get_content_type() for outer in parts for message_part in outer.walk()]
    except RecursionError:
        raise MalformedUserData(_DEEP) from None
    for kind in kinds if _HANDLERS not in kinds else ():
        if kind not in known_types and kind not in _ENVELOPES and not kind.startswith("multipart/"):
            hint = (
                did_you_mean(kind, known_types)
                or f": use {', '.join((_USUAL, *sorted(known_types - CLOUD_INIT_TYPES)))}"
            )
            raise MalformedUserData(
                f"nothing on the node reads a MIME part of type {kind}{hint}", _line(text, kind)
            )
    return parts


def mime(parts: Iterable[Message]) -> str:
    """Return a MIME document of these parts."""
    payload: list[Message | str] = [*parts]
    boundary, written = "//", [_written(message) for message in payload if isinstance(message, Message)]
    while any(f"--{boundary}" in text for text in written):
        boundary += "/"
    document = Message()
    document["MIME-Version"] = "1.0"
    document["Content-Type"] = f'multipart/mixed; boundary="{boundary}"'
    document.set_payload(payload)
    return _written(document)


def _top_parts(message: Message) -> list[Message]:
    if message.is_multipart():
        return [_bare(submessage) for submessage in message.get_payload() if isinstance(submessage, Message)]
    if message.get_content_maintype() == "multipart":
        raise MalformedUserData("the MIME document has no parts: its boundary occurs nowhere in the body")
    return [_bare(message)]


def _bare(message: Message) -> Message:
    """Return a part without the header that only a whole document has."""
    if not message.is_multipart():
        del message["MIME-Version"]
    return message


def _written(message: Message) -> str:
    from email.generator import Generator
    from io import StringIO

    text = StringIO()
    try:
        Generator(text, mangle_from_=False, maxheaderlen=0).flatten(message)
    except RecursionError:
        raise MalformedUserData(_DEEP) from None
    return text.getvalue()


def _line(text: str, kind: str) -> int:
    match = re.search(re.escape(kind), text, re.IGNORECASE)
    return line_at(text, match.start()) if match else 0


_LOG = "exec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1"


def al2_user_data(start: Start) -> str:
    """Return the user data: the user's parts, then the script. Raises MalformedUserData."""
    script = f"#!/bin/bash -xe\n{_LOG}\n{shlex.join(_command(start))}\n"
    return mime([*_own_parts(start.nodeclass.user_data), part(SHELL, script)])


def _command(start: Start) -> list[str]:
    cluster, dns = start.cluster, start.dns_addresses
    command = ["/etc/eks/bootstrap.sh", cluster.name, "--apiserver-endpoint", cluster.endpoint]
    if cluster.ca_bundle:
        command += ["--b64-cluster-ca", cluster.ca_bundle]
    if cluster.ip_family == "ipv6":
        command += ["--ip-family", "ipv6"]
    if dns:
        command += ["--dns-cluster-ip", dns[0]]
    command += ["--use-max-pods", "false", "--kubelet-extra-args", kubelet_flags(start)]
    return [*command, "--local-disks", "raid0"] if start.joins_disks else command


def _own_parts(text: str) -> list[Message]:
    text = text.replace("\r\n", "\n")
    if not text.strip():
        return []
    return mime_parts(text) if is_mime(text) else [bare_part(text)]


_SCRIPT = '[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1"'
_TAG = re.compile(
    r"</?(?:powershell|script|persist|powershellArguments|runAsLocalSystem|detach)>", re.IGNORECASE
)
_WHOLE = re.compile(r"\s*<powershell>(.*?)</powershell>(.*)", re.IGNORECASE | re.DOTALL)
_OPTION = re.compile(r"<(persist|powershellArguments|runAsLocalSystem|detach)>[^<>]*</\1>", re.IGNORECASE)


def windows_user_data(start: Start) -> str:
    """Return the user data. Raises MalformedUserData."""
    own, options = _script_and_options(start.nodeclass.user_data)
    lines = ["<powershell>", *own, _SCRIPT, f"& $EKSBootstrapScriptFile {_arguments(start)}", "</powershell>"]
    return "\n".join([*lines, *options]) + "\n"


def _arguments(start: Start) -> str:
    cluster, dns = start.cluster, start.dns_addresses
    arguments = {
        "EKSClusterName": cluster.name,
        "APIServerEndpoint": cluster.endpoint,
        "Base64ClusterCA": cluster.ca_bundle,
        "KubeletExtraArgs": kubelet_flags(start),
        "DNSClusterIP": dns[0] if dns else "",
    }
    return parameters({name: value for name, value in arguments.items() if value})


def _script_and_options(text: str) -> tuple[list[str], list[str]]:
    """Return the user's script and EC2Launch's options after it, each empty or one text.

    The script may be within `<powershell>`. Any other tag of EC2Launch would end it, or start a second one.
    """
    match = _WHOLE.match(text)
    script, trailer, begins = (match[1], match[2], match.start(1)) if match else (text, "", 0)
    stray = _TAG.search(script)
    if stray:
        advice = "write PowerShell alone, or all of it between <powershell> and </powershell>"
        raise MalformedUserData(
            f"{stray[0]} cannot stand here: {advice}", line_at(text, begins + stray.start())
        )
    after = _OPTION.sub("", trailer).strip()
    if after:
        line = line_at(text, text.rindex(after.split()[0]))
        raise MalformedUserData(
            f"{after.split()[0][:40]!r} follows </powershell>: move it into the script", line
        )
    return _stripped(script), _stripped(trailer)


def _stripped(text: str) -> list[str]:
    stripped = text.replace("\r\n", "\n").strip("\n")
    return [stripped] if stripped.strip() else []


def kubelet_flags(start: Start) -> str:
    """Return all flags in one text. Double quotes keep each value in one piece when the node splits it."""
    kubelet = start.kubelet
    flags: dict[str, object] = {
        "node-labels": _pairs(start.labels),
        "register-with-taints": ",".join(map(str, start.taints)),
        "max-pods": start.max_pods,
        "pods-per-core": kubelet.pods_per_core,
        "system-reserved": _pairs(format_resources(kubelet.system_reserved)),
        "kube-reserved": _pairs(format_resources(kubelet.kube_reserved)),
        "eviction-hard": _pairs(kubelet.eviction_hard, "<"),
        "eviction-soft": _pairs(kubelet.eviction_soft, "<"),
        "eviction-soft-grace-period": _pairs(kubelet.eviction_soft_grace_period),
        "eviction-max-pod-grace-period": kubelet.eviction_max_pod_grace_period,
        "image-gc-high-threshold": kubelet.image_gc_high_threshold_percent,
        "image-gc-low-threshold": kubelet.image_gc_low_threshold_percent,
        "cpu-cfs-quota": kubelet.cpu_cfs_quota,
    }
    return " ".join(f"--{name}={_value(value)}" for name, value in flags.items() if value not in (None, ""))


def _pairs(pairs: Mapping[str, str], sign: str = "=") -> str:
    return ",".join(f"{key}{sign}{pairs[key]}" for key in sorted(pairs))


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


_QUOTES = re.compile("['\u2018\u2019\u201a\u201b]")
"""The characters that end a verbatim string: PowerShell takes typographic quotes for straight ones."""


def quoted(text: str) -> str:
    """Return a verbatim string: nothing in it is expanded, and a quote in it is doubled."""
    return f"'{_QUOTES.sub(lambda match: match[0] * 2, text)}'"


def parameters(arguments: Mapping[str, str]) -> str:
    """Return the parameters of a command, each with its quoted value."""
    return " ".join(f"-{name} {quoted(value)}" for name, value in arguments.items())
