"""`nodesmith chaos`: faults of a running local system. They live in its process, and end with it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener

from nodesmith.errors import Rejected
from nodesmith_cli.output.printing import aligned, print_report
from nodesmith_formats.localsystem.reaching import Reached, default_kubeconfig, reach
from nodesmith_local.chaos.faults import FAULTS, faults_of

_OK = 0
_PATIENCE_SECONDS = 60.0
_TITLES = ("NAME", "STATE", "LEFT", "HITS", "RECOVERED AFTER", "FUNCTIONS")


def list_faults(output: str) -> int:
    """Print the faults that can be started."""
    offered = [
        {"name": kind.value, "does": fault.does, "services": list(fault.services), "shows": fault.shows}
        for kind, fault in FAULTS.items()
    ]
    print_report({"faults": offered}, _offered(offered), output, schema="faults")
    return _OK


def start(
    fault: str,
    services: Sequence[str],
    functions: Sequence[str],
    seconds: float,
    share: float | None,
    kubeconfig: Path | None,
    output: str,
) -> int:
    """Start a fault of each of these services, and print what was started. Raises Rejected with the remedy."""
    wanted = faults_of(fault, services, functions, seconds, share)
    asked = {
        "kind": fault,
        "services": [selected.service for selected in wanted],
        "functions": functions,
        "seconds": seconds,
        "share": share,
    }
    system = reach(kubeconfig or default_kubeconfig())
    _print(_ask(system, "POST", body=asked), output, _begun(system))
    return _OK


def stop(name: str, kubeconfig: Path | None, output: str) -> int:
    """End a fault, or all without a name, and print what has ended. Raises Rejected with the remedy."""
    system = reach(kubeconfig or default_kubeconfig())
    ended = _ask(system, "DELETE", f"/{quote(name)}" if name else "")
    _print(ended, output, [] if ended else ["no fault is active"])
    return _OK


def status(kubeconfig: Path | None, output: str) -> int:
    """Print the faults that were started, and whether the system has recovered from them. Raises Rejected."""
    faults = _ask(reach(kubeconfig or default_kubeconfig()), "GET")
    _print(
        faults, output, [] if faults else ["no fault was started: `nodesmith chaos list` shows what there is"]
    )
    return _OK


def _print(faults: Sequence[Mapping[str, Any]], output: str, more: Iterable[str]) -> None:
    table = aligned([_TITLES, *map(_row, faults)]) if faults else ()
    lines = [*table, *_waiting(faults), *_unmet(faults), *more]
    print_report({"faults": faults}, lines, output, schema="chaos")


def _row(fault: Mapping[str, Any]) -> Sequence[str]:
    seconds = fault["recoverySeconds"]
    return (
        fault["name"],
        fault["state"],
        f"{fault['secondsLeft']:.0f} s" if fault["state"] == "active" else "-",
        f"{fault['hits']:,}",
        "-" if seconds is None else f"{seconds:.0f} s",
        ", ".join(fault["functions"]) or "all",
    )


def _waiting(faults: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for fault in dict.fromkeys(fault["waitsFor"] for fault in faults if fault["waitsFor"]):
        yield f"recovery: {fault}"


def _unmet(faults: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for fault in faults:
        if fault["state"] != "active" and not fault["hits"]:
            yield f"{fault['name']} hit nothing: let it last longer, or change something in the cluster meanwhile"


def _begun(system: Reached) -> Iterator[str]:
    where = "" if system.kubeconfig == default_kubeconfig() else f" --kubeconfig {system.kubeconfig}"
    yield f"  nodesmith chaos status --watch{where}   # shows what it hits, and when all is well again"


def _offered(faults: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    everything = max((fault["services"] for fault in faults), key=len)
    yield f"services: {', '.join(everything)}"
    for fault in faults:
        yield ""
        of = "any service" if fault["services"] == everything else ", ".join(fault["services"])
        yield f"{fault['name']} ({of})"
        yield f"  {fault['does']}"
        yield f"  shows in: {fault['shows']}"


def _ask(system: Reached, method: str, path: str = "", body: object = None) -> Sequence[Mapping[str, Any]]:
    """Send a request to the running system, and return the faults that it answers. Raises Rejected."""
    if not system.chaos_url:
        raise Rejected(
            f"{system.kubeconfig}: another version of `nodesmith local up` wrote it: start that again"
        )
    headers = {"Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = Request(system.chaos_url + path, data, headers, method=method)  # noqa: S310 our own address
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=_PATIENCE_SECONDS) as answer:
            found: Sequence[Mapping[str, Any]] = json.load(answer)["faults"]
            return found
    except HTTPError as error:
        raise Rejected(str(json.load(error)["message"])) from None
    except OSError as error:
        raise Rejected(
            f"{system.kubeconfig}: no local system runs at its address any more: start `nodesmith local up` "
            f"again ({error})"
        ) from None
