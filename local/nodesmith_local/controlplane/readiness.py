"""Readiness of the programs, polled frequently."""

from __future__ import annotations

import ssl
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from nodesmith.errors import Rejected
from nodesmith_local.controlplane.process import Process

_LOOK_SECONDS = 0.05
_ANSWER_SECONDS = 5.0
_LONGEST_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Probe:
    """A URL that answers 200 when its program is ready; `token` is for URLs that require one."""

    url: str
    token: str = ""


def wait_until_ready(probes: Sequence[Probe], processes: Collection[Process], authority: Path) -> None:
    """Return when all probes have answered. Raises Died if a process ends, Rejected after three minutes."""
    until = time.monotonic() + _LONGEST_SECONDS
    remaining: Iterable[Probe] = probes
    while remaining := [probe for probe in remaining if not _answers(probe, authority)]:
        for process in processes:
            process.check()
        if time.monotonic() > until:
            raise Rejected(
                f"{remaining[0].url} was not ready within {_LONGEST_SECONDS:.0f} s: "
                f"see the logs in {authority.parent}, or try again when this machine is less busy"
            )
        time.sleep(_LOOK_SECONDS)


def _answers(probe: Probe, authority: Path) -> bool:
    headers = {"Authorization": f"Bearer {probe.token}"} if probe.token else {}
    request = Request(probe.url, headers=headers)  # noqa: S310 http or https, and ours
    try:
        trusting = HTTPSHandler(context=ssl.create_default_context(cafile=str(authority)))
        with build_opener(ProxyHandler({}), trusting).open(request, timeout=_ANSWER_SECONDS) as response:
            return bool(response.status == 200)
    except (URLError, OSError):
        return False
