"""What `nodesmith plan` does, from the options to the exit status."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.adapters.catalog.files import read_catalog_file
from nodesmith.decisions.provisioning import Inputs, Plan
from nodesmith.errors import Rejected
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.nodeclasses.nodeconfiguration import NodeSettings
from nodesmith.settings import Settings, read_settings
from nodesmith_cli.foreign import name_of, said_of
from nodesmith_cli.local.places import region_of
from nodesmith_cli.local.view import console
from nodesmith_cli.planning.consolidating import consolidated
from nodesmith_cli.planning.deciding import planned
from nodesmith_cli.planning.inputs import plan_inputs
from nodesmith_cli.planning.manifests import Manifests, read_manifests, restricted
from nodesmith_cli.planning.report import plan_json
from nodesmith_cli.planning.table import show
from nodesmith_cli.planning.waiting import told

OK, VIOLATIONS, BAD_INPUT = 0, 1, 2
_OF_NODES = tuple(field.name for field in fields(NodeSettings))
_SETTINGS = tuple(field.metadata["env"] for field in fields(Settings) if field.name in _OF_NODES)
"""What of a deployment's settings changes decisions; read from the environment, as the functions do."""
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to plan for. `kubeconfig` is None where no cluster is to be read."""

    files: tuple[str, ...] = ()
    catalog: str = ""
    region: str = ""
    kubeconfig: str | None = None
    pools: tuple[str, ...] = ()
    audit: bool = False
    consolidate: bool = False


def run(wanted: Wanted, output: str) -> int:
    """Plan and print; give the exit status. Raises Rejected or Transient where there is nothing to plan from."""
    side = console(stderr=True)
    manifests = _read(wanted, side)
    catalog, settings = _catalog(wanted, manifests, side), node_settings(os.environ)
    with told(side, "reading it as a cluster"):
        inputs = plan_inputs(manifests, catalog, settings=settings)
    if wanted.consolidate:
        return _consolidated(wanted, inputs, side, output)
    waiting = sum(pod.unschedulable for pod in inputs.snapshot.pods)
    began = time.process_time()
    with told(side, f"deciding on {waiting:,} pods"):
        plan = planned(inputs)
    written = plan_json(plan, time.process_time() - began)
    foreign = [f"NodePool {name_of(each)} {said_of(each)}" for each in inputs.snapshot.foreign_nodepools]
    _tell(side, [*foreign, *_problems(manifests, plan)], style="yellow")
    _PRINTERS[output](plan, inputs, written)
    return _audited(manifests, inputs, written, side) if wanted.audit else OK


def _consolidated(wanted: Wanted, inputs: Inputs, side: Console, output: str) -> int:
    if wanted.audit:
        raise Rejected("--audit checks which nodes to buy for pending pods: leave it out with --consolidate")
    _tell(side, inputs.snapshot.problems, style="yellow")
    consolidated(inputs, datetime.now(UTC) if wanted.kubeconfig is not None else None, side, output)
    return OK


def node_settings(environment: Mapping[str, str]) -> NodeSettings:
    """Read what an operator sets once for a cluster. Raises Rejected, naming the variable, for what is no setting."""
    named = {name: environment[name] for name in _SETTINGS if name in environment}
    found = read_settings({"AWS_REGION": "any", **named})
    return NodeSettings(**{name: getattr(found, name) for name in _OF_NODES})


def _read(wanted: Wanted, side: Console) -> Manifests:
    with told(side, "reading"):
        live = []
        if wanted.kubeconfig is not None:
            from nodesmith_cli.planning.cluster import cluster_documents

            live = list(cluster_documents(wanted.kubeconfig))
        manifests = read_manifests(wanted.files, live)
    _tell(side, map(str, manifests.faults), style="red")
    if manifests.unread:
        kinds = ", ".join(f"{kind} ({count})" for kind, count in manifests.unread.items())
        side.print(f"not read for a plan: {kinds}", style="dim")
    if not manifests.documents:
        raise Rejected(f"nothing to plan from: {', '.join(wanted.files)} hold no object that can be read")
    return restricted(manifests, wanted.pools)


def _catalog(wanted: Wanted, manifests: Manifests, side: Console) -> Catalog:
    if not wanted.catalog:
        return embedded_catalog(wanted.region or region_of(d.manifest for d in manifests.documents))
    if wanted.region:
        raise Rejected("--region: a catalogue file has its own region, leave one of the two out")
    file = Path(wanted.catalog)
    try:
        data, made_at = file.read_bytes(), datetime.fromtimestamp(file.stat().st_mtime, UTC)
    except OSError as error:
        raise Rejected(f"--catalog {file}: {error.strerror}") from None
    catalog, problems = read_catalog_file(data, made_at)
    _tell(side, (f"{file}: {problem}" for problem in problems), style="yellow")
    return catalog


def _problems(manifests: Manifests, plan: Plan) -> list[str]:
    """Return what the decision found wrong with objects and no fault says already; and why NodePools buy nothing."""
    said = tuple(f"{fault.object}: {fault.field} " for fault in manifests.faults if fault.field)
    found = [problem for problem in plan.problems if not problem.startswith(said)]
    obstacles = [
        f"NodePool {name} buys nothing: {why}"
        for name, why in (plan.obstacles or {}).items()
        if not any(problem.startswith(f"NodePool/{name}: ") for problem in (*found, *said))
    ]
    return found + obstacles


def _audited(manifests: Manifests, inputs: Inputs, written: Mapping[str, Any], side: Console) -> int:
    from nodesmith_cli.audit import audit

    with told(side, "auditing"):
        objects = [document.manifest for document in manifests.documents]
        found = audit(objects, inputs.catalog, written, settings=inputs.settings)
    wrong = [violation for violation in found if not violation.is_warning]
    side.print(f"audit: {len(wrong)} violations" if wrong else "audit: no violation found")
    _tell(side, map(str, found), style="red" if wrong else "yellow")
    return VIOLATIONS if wrong else OK


def _tell(to: Console, lines: Iterable[str], style: str) -> None:
    """Print findings, a line each, not more than anybody reads."""
    found: Sequence[str] = list(lines)
    for line in found[:_SHOWN]:
        to.print(line, style=style)
    if len(found) > _SHOWN:
        to.print(f"and {len(found) - _SHOWN} more like these", style=style)


def _print_json(plan: Plan, inputs: Inputs, written: Mapping[str, Any]) -> None:
    del plan, inputs
    print(json.dumps(written, indent=2))


def _print_yaml(plan: Plan, inputs: Inputs, written: Mapping[str, Any]) -> None:
    del plan, inputs
    print(yaml.safe_dump(dict(written), sort_keys=False), end="")


def _print_table(plan: Plan, inputs: Inputs, written: Mapping[str, Any]) -> None:
    show(console(), plan, inputs, written)


_PRINTERS: Mapping[str, Callable[[Plan, Inputs, Mapping[str, Any]], None]] = {
    "json": _print_json,
    "yaml": _print_yaml,
    "table": _print_table,
}
