"""User data of Amazon Linux 2: a MIME document whose last part calls EKS's bootstrap script."""

from __future__ import annotations

import shlex
from email.message import Message

from nodesmith.decisions.launch.userdata.kubeletflags import kubelet_flags
from nodesmith.decisions.launch.userdata.mime import SHELL, is_mime, mime, mime_parts, part
from nodesmith.decisions.launch.userdata.starting import Start

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
    return mime_parts(text) if is_mime(text) else [part(SHELL, text)]
