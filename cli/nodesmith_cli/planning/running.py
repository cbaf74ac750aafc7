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
from nodesmith_cli.sharing.foreign import owner_message
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
    messages = Messages()
    manifests = _read(request, messages)
    manifests = manifests if request.pods.is_all else _selected(manifests, request.pods, messages)
    catalog, settings = _catalog(request, manifests, messages), node_settings(os.environ)
    with progress("building the inputs", to=messages, key="plan-inputs", size=len(manifests.documents)):
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
    _print_findings(messages, map(str, shifts), style="yellow")
    if request.consolidate:
        return _consolidated(request, inputs, messages, output)
    waiting = sum(pod.unschedulable for pod in inputs.snapshot.pods)
    if waiting > _MANY:
        import_module("numpy")  # the decision uses it, but its duration should not include the import
    began = time.process_time()
    with progress(f"deciding on {waiting:,} pods", to=messages, key="plan", size=waiting):
        for_pods = planned(inputs)
        plan, requests = planned_requests(inputs, for_pods)
    seconds = time.process_time() - began
    names_for_pods = {node.claim.name for node in for_pods.nodes}
    of_gangs = {node.claim.name for node in plan.nodes} - names_for_pods
    report = plan_json(plan, seconds, _held(inputs) if plan.rooms else (), of_gangs)
    foreign = [
        f"NodePool {name_of(pool)} {owner_message(pool)}" for pool in inputs.snapshot.foreign_nodepools
    ]
    _print_findings(messages, [*foreign, *_problems(manifests, plan)], style="yellow")
    _print_findings(messages, requests, style="cyan")
    match output:
        case "html":
            _deliver(plan, inputs, report, messages)
        case "name":
            for node in report["nodes"]:
                print(f"nodeclaim/{node['name']}")
        case "table" | "wide":
            from nodesmith_cli.planning.table import show

            show(console(), plan, inputs, report, is_wide=output == "wide")
        case _:
            print_data(report, output, "plan")
    if not request.audit:
        return OK
    empty = {n.claim.name for n in plan.nodes if n.claim.name in of_gangs and not n.claim.nominated}
    return _audited(manifests, inputs, without_room(report, empty), messages)


def _held(inputs: Inputs) -> Sequence[HeldNode]:
    from nodesmith.decisions.disruption.costs import held_for_buffers

    return held_for_buffers(inputs)


def _selected(manifests: Manifests, selection: Selection, messages: Messages) -> Manifests:
    """Return the manifests without the pending pods, and the workloads, that are not selected."""
    selected = tuple(
        document for document in manifests.documents if _is_selected(document.manifest, selection)
    )
    omitted = len(manifests.documents) - len(selected)
    if omitted:
        messages.print(f"{counted(omitted, 'object')} not selected", style="dim")
    return replace(manifests, documents=selected)


def _is_selected(manifest: Mapping[str, Any], selection: Selection) -> bool:
    """Return whether an object is selected: pending pods and workloads by their pods' labels, all others always."""
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
    return is_bound or selection.has(_mapping(metadata.get("labels")), namespace)


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping unchanged, and an empty mapping for any other value."""
    return value if isinstance(value, dict) else {}


def _consolidated(request: PlanRequest, inputs: Inputs, messages: Messages, output: str) -> int:
    if request.audit:
        raise Rejected(
            "--audit and --consolidate are mutually exclusive: --audit checks nodes for pending pods"
        )
    _print_findings(messages, inputs.snapshot.problems, style="yellow")
    from nodesmith_cli.planning.consolidating import consolidated

    consolidated(
        inputs, datetime.now(UTC) if request.kubeconfig is not None else None, messages.console, output
    )
    return OK


def node_settings(environment: Mapping[str, str]) -> NodeSettings:
    """Return the settings from environment variables. Raises Rejected, naming the variable, if one is invalid."""
    named = {name: environment[name] for name in _SETTINGS if name in environment}
    settings = read_settings({"AWS_REGION": "any", **named})
    ipv6 = ":" in settings.cluster_service_cidr
    return NodeSettings(**{name: getattr(settings, name) for name in _OF_NODES}, ipv6=ipv6)


def _read(request: PlanRequest, messages: Messages) -> Manifests:
    with progress("reading", to=messages, key="plan-reading"):
        live = []
        if request.kubeconfig is not None:
            from nodesmith_cli.access.cluster import cluster_documents

            live = list(cluster_documents(request.kubeconfig))
        manifests = read_manifests(request.files, live)
    _print_findings(messages, map(str, manifests.faults), style="red")
    if manifests.unread:
        kinds = ", ".join(f"{kind} ({count})" for kind, count in manifests.unread.items())
        messages.print(f"ignored: {kinds}", style="dim")
    if not manifests.documents:
        raise Rejected(f"nothing to plan from: {', '.join(request.files)}: no readable object")
    return restricted(manifests, request.pools)


def _catalog(request: PlanRequest, manifests: Manifests, messages: Messages) -> Catalog:
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
    _print_findings(messages, (f"{file}: {problem}" for problem in problems), style="yellow")
    return catalog


def _problems(manifests: Manifests, plan: Plan) -> list[str]:
    """Return the decision's problems that are not faults already, and the reasons why NodePools launch nothing."""
    reported = tuple(f"{fault.object}: {fault.field} " for fault in manifests.faults if fault.field)
    problems = [problem for problem in plan.problems if not problem.startswith(reported)]
    obstacles = [
        f"NodePool {name} launches nothing: {reason}"
        for name, reason in (plan.obstacles or {}).items()
        if not any(problem.startswith(f"NodePool/{name}: ") for problem in (*problems, *reported))
    ]
    return problems + obstacles


def _audited(manifests: Manifests, inputs: Inputs, report: Mapping[str, Any], messages: Messages) -> int:
    from nodesmith_cli.audit import audit

    with progress("auditing", to=messages, key="audit", size=len(manifests.documents)):
        objects = [document.manifest for document in manifests.documents]
        violations = audit(objects, inputs.catalog, report, settings=inputs.settings)
    wrong = [violation for violation in violations if not violation.is_warning]
    messages.print(f"audit: {counted(len(wrong), 'violation')}" if wrong else "audit: no violations found")
    _print_findings(messages, map(str, violations), style="red" if wrong else "yellow")
    return VIOLATIONS if wrong else OK


def _print_findings(to: Messages, lines: Iterable[str], style: str) -> None:
    """Print findings, one per line, up to a limit."""
    findings: Sequence[str] = list(lines)
    for line in findings[:_SHOWN]:
        to.print(line, style=style)
    if len(findings) > _SHOWN:
        to.print(f"and {len(findings) - _SHOWN} more", style=style)


def _deliver(plan: Plan, inputs: Inputs, report: Mapping[str, Any], messages: Messages) -> None:
    from nodesmith_cli.output.reporting.delivery import deliver
    from nodesmith_cli.planning.alternatives import alternatives, for_seconds
    from nodesmith_cli.planning.page import plan_page

    of_gangs = gang_names(report)
    plan = replace(plan, nodes=tuple(node for node in plan.nodes if node.claim.name not in of_gangs))
    has_time = for_seconds(_ALTERNATIVES_SECONDS - report["seconds"])  # each takes about as long as the plan
    with progress("deciding on alternatives", to=messages, expected_seconds=_ALTERNATIVES_SECONDS):
        others = alternatives(inputs, plan, has_time)
    deliver(plan_page(plan, inputs, others, report, datetime.now(UTC)), "plan")
