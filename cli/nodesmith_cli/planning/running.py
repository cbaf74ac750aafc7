"""The implementation of `nodesmith plan`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.decisions.provisioning import Inputs, Plan
from nodesmith.errors import Rejected
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.policies import NodeSettings
from nodesmith.settings import Settings, read_settings
from nodesmith_cli.access.selecting import EVERYTHING, Selection
from nodesmith_cli.output.printing import print_data
from nodesmith_cli.output.progress import progress
from nodesmith_cli.output.terminal import Messages, console
from nodesmith_cli.planning.deciding import planned, planned_requests
from nodesmith_cli.planning.inputs import plan_inputs, zonal_shifts
from nodesmith_cli.planning.manifests import Manifests, read_manifests, restricted
from nodesmith_cli.planning.report import gang_names, plan_json, without_room
from nodesmith_cli.sharing.foreign import said_of
from nodesmith_formats.catalogfiles import read_catalog_file
from nodesmith_formats.kubernetes.objects import name_of
from nodesmith_formats.manifests.places import region_of
from nodesmith_formats.wording import counted

if TYPE_CHECKING:
    from nodesmith.decisions.disruption.costs import HeldNode

OK, VIOLATIONS, BAD_INPUT = 0, 1, 2
_SERVICE_CIDR = "CLUSTER_SERVICE_CIDR"
_OF_NODES = tuple(
    sorted({field.name for field in fields(NodeSettings)} & {field.name for field in fields(Settings)})
)
_SETTINGS = (
    *(field.metadata["env"] for field in fields(Settings) if field.name in _OF_NODES),
    _SERVICE_CIDR,
)
"""The environment variables of the settings that affect decisions, as in a deployment."""
_SHOWN, _MANY = 20, 100
_WORKLOADS = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "Job", "ReplicationController"})
"""Kinds whose pods are planned. DaemonSets belong to every node."""
_ALTERNATIVES_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What to plan for. `kubeconfig` is None if no live cluster is read."""

    files: tuple[str, ...] = ()
    catalog: str = ""
    region: str = ""
    kubeconfig: str | None = None
    pools: tuple[str, ...] = ()
    audit: bool = False
    consolidate: bool = False
    shifted_zones: tuple[str, ...] = ()
    commitments: str = ""
    pods: Selection = EVERYTHING
    """The pending pods that nodes are planned for; the others stay as they are."""


def run(request: PlanRequest, output: str) -> int:
    """Plan, print the result, and return the exit status. Raises Rejected or Transient if the input is unusable."""
    side = Messages()
    manifests = _read(request, side)
    manifests = manifests if request.pods.is_all else _selected(manifests, request.pods, side)
    catalog, settings = _catalog(request, manifests, side), node_settings(os.environ)
    with progress("building the inputs", to=side, key="plan-inputs", size=len(manifests.documents)):
        inputs = plan_inputs(manifests, catalog, settings=settings)
        shifts = zonal_shifts(inputs, request.shifted_zones, live=request.kubeconfig is not None)
        inputs = replace(inputs, ledger=replace(inputs.ledger, zonal_shifts=shifts))
        if request.commitments:
            if request.audit:
                raise Rejected(
                    "--audit and --commitments are mutually exclusive: the audit knows list prices only"
                )
            from nodesmith_cli.costs.commitments import commitments_in, with_commitments

            inputs = with_commitments(inputs, commitments_in(request.commitments, catalog, inputs.now))
    _print_findings(side, map(str, shifts), style="yellow")
    if request.consolidate:
        return _consolidated(request, inputs, side, output)
    waiting = sum(pod.unschedulable for pod in inputs.snapshot.pods)
    if waiting > _MANY:
        import_module("numpy")  # the decision uses it, but its duration should not include the import
    began = time.process_time()
    with progress(f"deciding on {waiting:,} pods", to=side, key="plan", size=waiting):
        for_pods = planned(inputs)
        plan, requests = planned_requests(inputs, for_pods)
    seconds = time.process_time() - began
    known = {node.claim.name for node in for_pods.nodes}
    of_gangs = {node.claim.name for node in plan.nodes} - known
    written = plan_json(plan, seconds, _held(inputs) if plan.rooms else (), of_gangs)
    foreign = [f"NodePool {name_of(each)} {said_of(each)}" for each in inputs.snapshot.foreign_nodepools]
    _print_findings(side, [*foreign, *_problems(manifests, plan)], style="yellow")
    _print_findings(side, requests, style="cyan")
    match output:
        case "html":
            _deliver(plan, inputs, written, side)
        case "name":
            for node in written["nodes"]:
                print(f"nodeclaim/{node['name']}")
        case "table" | "wide":
            from nodesmith_cli.planning.table import show

            show(console(), plan, inputs, written, is_wide=output == "wide")
        case _:
            print_data(written, output, "plan")
    if not request.audit:
        return OK
    kept = {n.claim.name for n in plan.nodes if n.claim.name in of_gangs and not n.claim.nominated}
    return _audited(manifests, inputs, without_room(written, kept), side)


def _held(inputs: Inputs) -> Sequence[HeldNode]:
    from nodesmith.decisions.disruption.costs import held_for_buffers

    return held_for_buffers(inputs)


def _selected(manifests: Manifests, wanted: Selection, side: Messages) -> Manifests:
    """Return the manifests without the pending pods, and the workloads, that are not selected."""
    kept = tuple(each for each in manifests.documents if _is_kept(each.manifest, wanted))
    left = len(manifests.documents) - len(kept)
    if left:
        side.print(f"{counted(left, 'object')} not selected", style="dim")
    return replace(manifests, documents=kept)


def _is_kept(manifest: Mapping[str, Any], wanted: Selection) -> bool:
    """Return whether an object stays: all but pending pods, and workloads by the labels of their pods."""
    spec = _mapping(manifest.get("spec"))
    if manifest["kind"] == "Pod":
        metadata = manifest["metadata"]
        is_bound = bool(spec.get("nodeName"))
    elif manifest["kind"] in _WORKLOADS:
        metadata = _mapping(_mapping(spec.get("template")).get("metadata"))
        is_bound = False
    else:
        return True
    namespace = str(manifest["metadata"].get("namespace") or "default")
    return is_bound or wanted.has(_mapping(metadata.get("labels")), namespace)


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping as it is, and an empty one for what a field should not contain."""
    return value if isinstance(value, dict) else {}


def _consolidated(request: PlanRequest, inputs: Inputs, side: Messages, output: str) -> int:
    if request.audit:
        raise Rejected(
            "--audit and --consolidate are mutually exclusive: --audit checks nodes for pending pods"
        )
    _print_findings(side, inputs.snapshot.problems, style="yellow")
    from nodesmith_cli.planning.consolidating import consolidated

    consolidated(inputs, datetime.now(UTC) if request.kubeconfig is not None else None, side.console, output)
    return OK


def node_settings(environment: Mapping[str, str]) -> NodeSettings:
    """Return the settings from environment variables. Raises Rejected, naming the variable, if one is invalid."""
    named = {name: environment[name] for name in _SETTINGS if name in environment}
    found = read_settings({"AWS_REGION": "any", **named})
    ipv6 = ":" in found.cluster_service_cidr
    return NodeSettings(**{name: getattr(found, name) for name in _OF_NODES}, ipv6=ipv6)


def _read(request: PlanRequest, side: Messages) -> Manifests:
    with progress("reading", to=side, key="plan-reading"):
        live = []
        if request.kubeconfig is not None:
            from nodesmith_cli.access.cluster import cluster_documents

            live = list(cluster_documents(request.kubeconfig))
        manifests = read_manifests(request.files, live)
    _print_findings(side, map(str, manifests.faults), style="red")
    if manifests.unread:
        kinds = ", ".join(f"{kind} ({count})" for kind, count in manifests.unread.items())
        side.print(f"ignored: {kinds}", style="dim")
    if not manifests.documents:
        raise Rejected(f"nothing to plan from: {', '.join(request.files)}: no readable object")
    return restricted(manifests, request.pools)


def _catalog(request: PlanRequest, manifests: Manifests, side: Messages) -> Catalog:
    if not request.catalog:
        return embedded_catalog(request.region or region_of(d.manifest for d in manifests.documents))
    if request.region:
        raise Rejected("--region and --catalog are mutually exclusive: a catalogue file has its own region")
    file = Path(request.catalog)
    try:
        data, made_at = file.read_bytes(), datetime.fromtimestamp(file.stat().st_mtime, UTC)
    except OSError as error:
        raise Rejected(f"--catalog {file}: {error.strerror}") from None
    catalog, problems = read_catalog_file(data, made_at, f"--catalog {file}")
    _print_findings(side, (f"{file}: {problem}" for problem in problems), style="yellow")
    return catalog


def _problems(manifests: Manifests, plan: Plan) -> list[str]:
    """Return the decision's problems that are not faults already, and the reasons why NodePools launch nothing."""
    said = tuple(f"{fault.object}: {fault.field} " for fault in manifests.faults if fault.field)
    found = [problem for problem in plan.problems if not problem.startswith(said)]
    obstacles = [
        f"NodePool {name} launches nothing: {why}"
        for name, why in (plan.obstacles or {}).items()
        if not any(problem.startswith(f"NodePool/{name}: ") for problem in (*found, *said))
    ]
    return found + obstacles


def _audited(manifests: Manifests, inputs: Inputs, written: Mapping[str, Any], side: Messages) -> int:
    from nodesmith_cli.audit import audit

    with progress("auditing", to=side, key="audit", size=len(manifests.documents)):
        objects = [document.manifest for document in manifests.documents]
        found = audit(objects, inputs.catalog, written, settings=inputs.settings)
    wrong = [violation for violation in found if not violation.is_warning]
    side.print(f"audit: {counted(len(wrong), 'violation')}" if wrong else "audit: no violations found")
    _print_findings(side, map(str, found), style="red" if wrong else "yellow")
    return VIOLATIONS if wrong else OK


def _print_findings(to: Messages, lines: Iterable[str], style: str) -> None:
    """Print findings, one per line, up to a limit."""
    found: Sequence[str] = list(lines)
    for line in found[:_SHOWN]:
        to.print(line, style=style)
    if len(found) > _SHOWN:
        to.print(f"and {len(found) - _SHOWN} more", style=style)


def _deliver(plan: Plan, inputs: Inputs, written: Mapping[str, Any], side: Messages) -> None:
    from nodesmith_cli.output.reporting.delivery import deliver
    from nodesmith_cli.planning.alternatives import alternatives, for_seconds
    from nodesmith_cli.planning.page import plan_page

    of_gangs = gang_names(written)
    plan = replace(plan, nodes=tuple(node for node in plan.nodes if node.claim.name not in of_gangs))
    has_time = for_seconds(_ALTERNATIVES_SECONDS - written["seconds"])  # each takes about as long as the plan
    with progress("deciding on alternatives", to=side, expected_seconds=_ALTERNATIVES_SECONDS):
        others = alternatives(inputs, plan, has_time)
    deliver(plan_page(plan, inputs, others, written, datetime.now(UTC)), "plan")
