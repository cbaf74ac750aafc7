"""The new nodes of a plan: the machines that each may become, and the labels it has with any of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from typing import TypeAlias

from nodesmith_cli.audit.machines import Machine, own_keys
from nodesmith_cli.audit.reading.fields import Manifest, dig, today
from nodesmith_cli.audit.reading.places import suited_daemons
from nodesmith_cli.audit.reading.pods import Pod
from nodesmith_cli.audit.reading.pools import Pool, allows
from nodesmith_cli.audit.reading.selectors import refusals, selecting_keys
from nodesmith_cli.audit.violations import Kind

Labels: TypeAlias = Mapping[str, str | None]
_MOST_COMBINATIONS = 256


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Why a node of this type must not have pods of one `placing`. It is empty if the type itself is not allowed."""

    placing: str
    type_name: str
    kind: Kind
    reason: str


@dataclass(slots=True)
class Purchase:
    """The machines that a new node may become, with the DaemonSet pods on each, and the misfits of its pods.

    `labels` are certain. `unsettled` are the keys of labels that depend on the type, or on a choice that the plan does
    not show.
    """

    pool: Pool
    machines: Sequence[Machine]
    labels: dict[str, str] = field(default_factory=dict)
    unsettled: frozenset[str] = frozenset()
    daemons: Mapping[str, tuple[Pod, ...]] = field(default_factory=dict)
    misfits: Sequence[Mismatch] = ()


def purchase(
    pool: Pool,
    machines: Sequence[Machine],
    pods: Iterable[Pod],
    stated: Mapping[str, str],
    daemons: Sequence[Pod],
) -> Purchase:
    """Return a purchase. `stated` are the labels that the plan sets on the node; `pods` has one pod of each placing."""
    pods = sorted(pods, key=lambda pod: pod.placing)
    keys = own_keys(pool, machines)
    options = [[stated[key]] if key in stated else list(_values(pool, key, pods)) for key in keys]
    tried: list[tuple[Labels, list[Mismatch]]] = []
    for combination in islice(product(*options), _MOST_COMBINATIONS):
        own = dict(zip(keys, combination, strict=True))
        tried.append((own, [misfit for machine in machines for misfit in _misfits(pool, machine, own, pods)]))
    good = [own for own, misfits in tried if not misfits]
    if not tried:
        return Purchase(pool, machines, misfits=_contradiction(pool, machines, keys, options))
    certain, unsettled = _settled_labels(machines, good or [tried[0][0]])
    running = {
        machine.type.name: _daemons(pool, machine, good or [tried[0][0]], daemons) for machine in machines
    }
    misfits = [] if good else min((misfits for _, misfits in tried), key=len)
    misfits = [*_misstated(pool, machines, stated), *misfits]
    return Purchase(pool, machines, certain, unsettled, running, misfits)


def _values(pool: Pool, key: str, pods: Iterable[Pod]) -> Iterator[str | None]:
    """Yield the values to try: those that the NodePool and pods mention, and their numeric neighbours."""
    named = {"0"}
    for requirement in pool.requirements:
        if today(requirement["key"]) == key:
            named |= set(map(str, requirement.get("values") or ()))
    for pod in pods:
        named |= set(_named(pod.spec, key))
    near = {str(int(value) + step) for value in named if value.isdigit() for step in (-1, 1)}
    yield from (value for value in sorted(named | near) if allows(pool, key, value))
    if allows(pool, key, None):
        yield None


def _named(spec: Manifest, key: str) -> Iterator[str]:
    yield from (value for name, value in (spec.get("nodeSelector") or {}).items() if today(name) == key)
    required = dig(spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    for term in (required or {}).get("nodeSelectorTerms") or ():
        for expression in term.get("matchExpressions") or ():
            if today(expression["key"]) == key:
                yield from map(str, expression.get("values") or ())


def _misfits(pool: Pool, machine: Machine, own: Labels, pods: Sequence[Pod]) -> list[Mismatch]:
    """Return the misfits of the pods on one machine, with the open labels that suit them best."""
    best: list[Mismatch] | None = None
    looked_at = {key for pod in pods for key in selecting_keys(pod.spec)}
    for labels in _labellings(machine, own, looked_at):
        misfits = [
            Mismatch(pod.placing, machine.type.name, kind, reason)
            for pod in pods
            for kind, reason in refusals(pod.spec, labels, pool.taints, None)
        ]
        if best is None or len(misfits) < len(best):
            best = misfits
    return best or []


def _labellings(machine: Machine, own: Labels, looked_at: Iterable[str]) -> Iterator[dict[str, str]]:
    """Yield the possible labels of a node of this machine, varied by these keys."""
    keys = sorted(set(looked_at) & machine.open.keys())
    given = {key: value for key, value in own.items() if value is not None}
    for values in islice(product(*(machine.open[key] for key in keys)), _MOST_COMBINATIONS):
        yield {**machine.labels, **given, **dict(zip(keys, values, strict=True))}


def _daemons(pool: Pool, machine: Machine, good: Iterable[Labels], daemons: Sequence[Pod]) -> tuple[Pod, ...]:
    """Return the DaemonSet pods that may run on a node of this machine."""
    looked_at = {key for daemon in daemons for key in selecting_keys(daemon.spec)}
    running: dict[str, Pod] = {}
    for own in good:
        for labels in _labellings(machine, own, looked_at):
            running |= {d.key: d for d in suited_daemons(daemons, labels, pool.taints, None)}
    return tuple(running.values())


def _settled_labels(
    machines: Sequence[Machine], good: Sequence[Labels]
) -> tuple[dict[str, str], frozenset[str]]:
    """Return the labels that are the same for all machines and all choices, and the keys of the others."""
    sets = [dict(machine.labels) for machine in machines] or [{}]
    shared = {k: v for k, v in sets[0].items() if all(labels.get(k) == v for labels in sets)}
    own = {k: v for k, v in good[0].items() if v is not None and all(labels[k] == v for labels in good)}
    all_keys = {key for labels in sets for key in labels} | {key for labels in good for key in labels}
    all_keys |= {key for machine in machines for key in machine.open}
    absent = {k for k in good[0] if all(labels[k] is None for labels in good)}
    return {**shared, **own}, frozenset(all_keys - shared.keys() - own.keys() - absent)


def _misstated(pool: Pool, machines: Sequence[Machine], stated: Mapping[str, str]) -> Iterator[Mismatch]:
    """Yield the labels that the plan sets but the node cannot have."""
    for machine in machines:
        for key, value in sorted(stated.items()):
            if not allows(pool, key, value) or machine.labels.get(key, value) != value:
                reason = f"the plan sets the label {key}={value}, which it cannot have"
                yield Mismatch("", machine.type.name, Kind.REQUIREMENTS, reason)


def _contradiction(
    pool: Pool, machines: Sequence[Machine], keys: Sequence[str], options: Sequence[Sequence[object]]
) -> list[Mismatch]:
    empty = next((key for key, values in zip(keys, options, strict=True) if not values), "")
    reason = f"no value of label {empty} satisfies the requirements of NodePool {pool.name}"
    return [Mismatch("", machine.type.name, Kind.REQUIREMENTS, reason) for machine in machines]
