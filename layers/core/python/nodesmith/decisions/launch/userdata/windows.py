"""User data of Windows: a PowerShell script, the user's lines before the call of EKS's bootstrap script."""

from __future__ import annotations

import re

from nodesmith.decisions.launch.userdata.kubeletflags import kubelet_flags
from nodesmith.decisions.launch.userdata.malformed import MalformedUserData, line_at
from nodesmith.decisions.launch.userdata.powershell import parameters
from nodesmith.decisions.launch.userdata.starting import Start

_SCRIPT = '[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1"'
_TAG = re.compile(
    r"</?(?:powershell|script|persist|powershellArguments|runAsLocalSystem|detach)>", re.IGNORECASE
)
_WHOLE = re.compile(r"\s*<powershell>(.*?)</powershell>(.*)", re.IGNORECASE | re.DOTALL)
_OPTION = re.compile(r"<(persist|powershellArguments|runAsLocalSystem|detach)>[^<>]*</\1>", re.IGNORECASE)


def windows_user_data(start: Start) -> str:
    """Return the user data. Raises MalformedUserData."""
    own, options = _own(start.nodeclass.user_data)
    lines = ["<powershell>", *own, _SCRIPT, f"& $EKSBootstrapScriptFile {_arguments(start)}", "</powershell>"]
    return "\n".join([*lines, *options]) + "\n"


def _arguments(start: Start) -> str:
    cluster, dns = start.cluster, start.dns_addresses
    named = {
        "EKSClusterName": cluster.name,
        "APIServerEndpoint": cluster.endpoint,
        "Base64ClusterCA": cluster.ca_bundle,
        "KubeletExtraArgs": kubelet_flags(start),
        "DNSClusterIP": dns[0] if dns else "",
    }
    return parameters({name: value for name, value in named.items() if value})


def _own(text: str) -> tuple[list[str], list[str]]:
    """Return the user's script and EC2Launch's options after it, each empty or one text.

    The script may be within `<powershell>`. Any other tag of EC2Launch would end it, or start a second one.
    """
    whole = _WHOLE.match(text)
    script, rest, begins = (whole[1], whole[2], whole.start(1)) if whole else (text, "", 0)
    stray = _TAG.search(script)
    if stray:
        where = "write PowerShell alone, or all of it between <powershell> and </powershell>"
        raise MalformedUserData(
            f"{stray[0]} cannot stand here: {where}", line_at(text, begins + stray.start())
        )
    after = _OPTION.sub("", rest).strip()
    if after:
        line = line_at(text, text.rindex(after.split()[0]))
        raise MalformedUserData(
            f"{after.split()[0][:40]!r} follows </powershell>: move it into the script", line
        )
    return _given(script), _given(rest)


def _given(text: str) -> list[str]:
    stripped = text.replace("\r\n", "\n").strip("\n")
    return [stripped] if stripped.strip() else []
