"""The kubeconfig of `local up`, merged from those of its clusters; it exists while they run."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from nodesmith.errors import Rejected
from nodesmith_cli.access.preconditions import MOST_CLUSTERS
from nodesmith_formats.manifests.places import numbered

CONTEXT = "nodesmith-local"
"""The context of the first cluster; the second one's is `nodesmith-local-2`."""
_CONTEXTS = [numbered(CONTEXT, number) for number in range(1, MOST_CLUSTERS + 1)]
_LISTS = ("clusters", "users", "contexts")


def renamed(kubeconfig: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a single-cluster kubeconfig with its cluster, user and context renamed to `name`."""
    ((cluster,), (user,), (context,)) = (kubeconfig[section] for section in _LISTS)
    return {
        **kubeconfig,
        "clusters": [{**cluster, "name": name}],
        "users": [{**user, "name": name}],
        "contexts": [
            {**context, "name": name, "context": {**context["context"], "cluster": name, "user": name}}
        ],
        "current-context": name,
    }


def merged(kubeconfigs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a kubeconfig with all clusters, users and contexts; the current context is the first one's."""
    together = {
        section: [item for kubeconfig in kubeconfigs for item in kubeconfig[section]] for section in _LISTS
    }
    return {**kubeconfigs[0], **together}


@contextmanager
def kubeconfig_at(path: Path, kubeconfig: Mapping[str, Any]) -> Iterator[Path]:
    """Write the kubeconfig, readable by its owner only, and remove it at the end of the block.

    It is also removed if `kubectl config use-context` has changed it. Raises Rejected instead of overwriting a file
    that refers to another cluster, including a local one that is still running.
    """
    text = yaml.safe_dump(dict(kubeconfig), sort_keys=False)
    try:
        _refuse_anothers(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Rejected(f"{path}: {error.strerror}: name another file with --kubeconfig") from None
    try:
        yield path
    finally:
        with suppress(OSError):
            there = path.read_text(encoding="utf-8")
            if _is_ours(there) and _servers(there) == _servers(text):
                path.unlink()


def _refuse_anothers(path: Path) -> None:
    if not path.exists():
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    if not _is_ours(text):
        raise Rejected(
            f"{path}: is not a kubeconfig of `local up` alone, and stays untouched: "
            "name another file with --kubeconfig"
        )
    running = next(filter(_answers, _servers(text)), "")
    if running:
        raise Rejected(
            f"{path}: contains a cluster that still runs at {running}: name another file with --kubeconfig"
        )


def _servers(text: str) -> list[str]:
    return re.findall(r"^ *server: *(\S+)", text, re.MULTILINE)


def _answers(server: str) -> bool:
    """Return whether a server listens at a URL, which one that was killed does not."""
    try:
        where = urlsplit(server)
        with socket.create_connection((str(where.hostname), where.port or 80), timeout=1):
            return True
    except (OSError, ValueError):
        return False


def _is_ours(text: str) -> bool:
    """Return whether a file may be overwritten: it is empty, or all of its contexts are those of `local up`."""
    if not text.strip():
        return True
    try:
        names = [context["name"] for context in yaml.safe_load(text)["contexts"]]
    except (yaml.YAMLError, TypeError, KeyError):  # a file of another kind
        return False
    return bool(names) and names == _CONTEXTS[: len(names)]
