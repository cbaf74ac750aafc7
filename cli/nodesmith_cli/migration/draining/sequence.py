"""The steps of a drain and of the way back, in an order that may be cut off anywhere.

To drain a group: tag it with its size, let it not balance its zones, allow it to become empty, and cordon its nodes.
Then for some nodes at a time evict the pods, wait until these have found places elsewhere, and end the instances, each
with the group's desired size. The group chooses no instance itself.

To go back: set the size of the tag again, uncordon the nodes that the drain has cordoned, wait until as many are Ready,
and remove the tag. The tag comes first and goes last: while a group has it, there is something to continue or to undo.

Each step reads the state again, and does only what is not done yet. Both start over from that state when run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from nodesmith.errors import Rejected
from nodesmith.model.snapshot import Snapshot
from nodesmith_cli.migration.draining.assessment import GroupAssessment, nodes_of
from nodesmith_cli.migration.draining.evictions import Progress, by_node, looked_at
from nodesmith_cli.migration.draining.groups import Before, NodeGroup, Size
from nodesmith_cli.migration.draining.objects import cordoned_for, is_cordoned
from nodesmith_cli.migration.draining.running import (
    POLL,
    SHOWN,
    Drain,
    Result,
    State,
    assess_group,
    settled,
    state_of,
    until,
    with_retries,
)
from nodesmith_cli.sharing.ownership import Manifest
from nodesmith_formats.kubernetes.objects import is_true, name_of
from nodesmith_formats.wording import counted, some


def drain(run: Drain, name: str) -> Result:
    """Drain a group. Raises Rejected, Transient, Denied; nothing is lost then, and the drain may be run again."""
    seen = with_retries(run, lambda: assess_group(run, name))
    if state_of(seen.group) is State.DRAINED:
        return Result(State.DRAINED, seen)
    if seen.obstacles:
        return Result(State.HINDERED, seen, seen.obstacles)
    if not run.ask(_question(seen)):
        return Result(state_of(seen.group), seen, ("not begun: you have declined",))
    waited = frozenset() if seen.group.before else frozenset(pod.key for pod in run.objects.waiting())
    progress = Progress(waited)
    with_retries(run, lambda: _begin(run, name))
    for batch in _batches(run, name, progress):
        names = some([_named(node, instance) for instance, node in batch.items()], SHOWN)
        if not run.ask(f"Drain {names} of group {name}?"):
            return _left(run, name, ("stopped: you have declined. Run the command again, or use --undo",))
        _drain_nodes(run, name, batch, progress)
        if len(progress.failed) >= run.rules.failures:
            return _rolled_back(run, name, progress)
    return _ended(run, name, progress)


def _question(group_assessment: GroupAssessment) -> str:
    group = group_assessment.group
    doing = "Continue the drain of" if group.before else "Drain"
    where = (
        f", for which {counted(group_assessment.planned, 'new node')} would be bought"
        if group_assessment.planned
        else ""
    )
    return (
        f"{doing} {group} ({group.size}): cordon {counted(len(group_assessment.nodes), 'node')}, "
        f"evict {counted(len(group_assessment.pods), 'pod')}{where}, and end its instances?"
    )


def _begin(run: Drain, name: str) -> None:
    """Remember the size, and prepare group and nodes. What is done already is left out."""
    group = run.groups.read(name)
    if group.before is None:
        before = Before(group.size, group.rebalances)
        run.groups.remember(group, before)
        run.say(f"{name}: remembered {before} in its tags")
    if group.rebalances:
        run.groups.rebalance(group, is_wanted=False)
    if group.size.minimum:
        run.groups.allow_empty(settled(run, name))
        run.say(f"{name}: set its minimum to 0")
        until(run, lambda: run.groups.read(name).size.minimum == 0, f"{name}: its minimum is still not 0")
    _cordon(run, name, nodes_of(group, run.objects.nodes()))


def _cordoned(run: Drain, name: str, nodes: Mapping[str, Manifest]) -> Snapshot:
    """Cordon the nodes that have joined since, and return the pods of all."""
    _cordon(run, name, nodes)
    return run.objects.looked_at([name_of(node) for node in nodes.values()])


def _cordon(run: Drain, name: str, nodes: Mapping[str, Manifest]) -> None:
    due = [name_of(member) for member in nodes.values() if not is_cordoned(member)]
    for node in sorted(due):
        run.objects.cordon(node, name)
    if due:
        run.say(f"{name}: cordoned {some(sorted(due), SHOWN)}")


def _batches(run: Drain, name: str, progress: Progress) -> Iterator[dict[str, Manifest | None]]:
    """Yield the instances that are drained next, with their Nodes; those with the fewest pods come first."""
    while True:
        group = with_retries(run, lambda: run.groups.read(name))
        _refuse_growth(group, progress)
        nodes = nodes_of(group, with_retries(run, run.objects.nodes))
        left = [
            instance
            for instance in group.instances
            if instance not in progress.failed and instance not in progress.held
        ]
        if not left:
            return
        pods = by_node(with_retries(run, partial(_cordoned, run, name, nodes)).pods)
        left.sort(key=lambda each: (len(pods.get(_name(nodes.get(each)), ())), each))
        size = group.before.size.desired if group.before and not group.weights else len(group.instances)
        yield {instance: nodes.get(instance) for instance in left[: run.rules.nodes_at_once(size)]}


def _refuse_growth(group: NodeGroup, progress: Progress) -> None:
    """Raise Rejected if somebody has made the group larger during its drain, rather than contend with them."""
    previous, progress.desired = progress.desired, group.size.desired
    if group.size.minimum or (previous is not None and group.size.desired > previous):
        raise Rejected(
            f"group {group.name}: somebody has set its size to {group.size} during its drain, such as Cluster "
            "Autoscaler or a stack. Nothing more was drained: stop them, then run the command again, or use --undo"
        )


def _drain_nodes(run: Drain, name: str, batch: Mapping[str, Manifest | None], progress: Progress) -> None:
    """Evict the pods of some nodes, and end each instance once its pods run elsewhere."""
    left, end, shown = dict(batch), run.clock() + run.rules.timeout, dict[str, str]()
    while left:
        standing = with_retries(run, lambda: looked_at(run, left, progress))
        for instance, node_found in standing.items():
            if node_found.is_held:
                progress.held[instance] = f"{_named(left.pop(instance), instance)}: {node_found.reason}"
            elif not node_found.reason:
                _end(run, name, instance, left.pop(instance), progress)
        if left and run.clock() >= end:
            for instance, node in left.items():
                progress.failed[instance] = f"{_named(node, instance)}: {standing[instance].reason}"
                run.say(f"{name}: not drained in time: {progress.failed[instance]}")
            return
        for instance, node in left.items():
            if shown.get(instance) != standing[instance].reason:
                shown[instance] = standing[instance].reason
                run.say(f"{name}: {_named(node, instance)} waits: {shown[instance]}")
        if left:
            run.sleep(POLL.total_seconds())


def _end(run: Drain, name: str, instance: str, node: Manifest | None, progress: Progress) -> None:
    with_retries(run, lambda: run.groups.end(instance))
    if progress.desired is not None:
        progress.desired -= 1  # or more, if the instance has a weight
    run.say(f"{name}: {_named(node, instance)} is empty; ended instance {instance}")


def _ended(run: Drain, name: str, progress: Progress) -> Result:
    return _left(run, name, (*progress.failed.values(), *progress.held.values()))


def _left(run: Drain, name: str, reason: tuple[str, ...]) -> Result:
    seen = with_retries(run, lambda: assess_group(run, name, is_planned=False))
    state = state_of(seen.group)
    if state is State.DRAINED:
        run.say(f"{name}: drained; --undo makes it as large as it was")
    return Result(state, seen, reason)


def _rolled_back(run: Drain, name: str, progress: Progress) -> Result:
    run.say(f"{name}: {counted(len(progress.failed), 'node')} could not be drained: rolling back")
    result = _restored(run, name)
    state = State.ROLLED_BACK if result.state is State.RESTORED else result.state
    return Result(state, result.seen, (*progress.failed.values(), *result.messages))


def undo(run: Drain, name: str) -> Result:
    """Make a group as large as it was before its drain, and uncordon its nodes. Raises Rejected, Transient, Denied."""
    seen = with_retries(run, lambda: assess_group(run, name, is_planned=False))
    group = seen.group
    if group.before is None:
        return Result(State.UNTOUCHED, seen)
    if group.obstacle:
        return Result(State.HINDERED, seen, (group.obstacle,))
    if not run.ask(f"Set {group} from {group.size} to {group.before.size} again, and uncordon its nodes?"):
        return Result(state_of(group), seen, ("not begun: you have declined",))
    return _restored(run, name)


def _restored(run: Drain, name: str) -> Result:
    with_retries(run, lambda: _restore(run, name))
    group = with_retries(run, lambda: run.groups.read(name))
    wanted, end = group.before.size.desired if group.before else 0, run.clock() + run.rules.timeout
    while (ready := with_retries(run, lambda: _ready(run, name))) < wanted:
        if run.clock() >= end:
            return _left(run, name, (f"nodes for {ready} of {wanted} are Ready: run the command again",))
        run.sleep(POLL.total_seconds())
    with_retries(run, lambda: run.groups.forget(group))
    seen = with_retries(run, lambda: assess_group(run, name, is_planned=False))
    run.say(f"{name}: restored, with {counted(len(seen.nodes), 'node')}")
    return Result(State.RESTORED, seen)


def _restore(run: Drain, name: str) -> None:
    """Uncordon the nodes that the drain has cordoned, and set the size again, no smaller than the group is now."""
    group = settled(run, name)
    before = group.before
    if before is None:
        return
    for node in sorted(nodes_of(group, run.objects.nodes()).values(), key=name_of):
        if cordoned_for(node) == name:
            run.objects.uncordon(name_of(node))
    desired = max(before.size.desired, group.weight_of(group.instances))
    size = Size(before.size.minimum, desired, max(before.size.maximum, desired))
    if group.size != size:
        run.groups.resize(group, size)
        run.say(f"{name}: set its size to {size}")
        until(run, lambda: run.groups.read(name).size == size, f"{name}: its size is still not {size}")
    if before.rebalances and not group.rebalances:
        run.groups.rebalance(group, is_wanted=True)


def _ready(run: Drain, name: str) -> int:
    """Return for how much of a group's size there are Ready nodes that the drain has not cordoned."""
    group = run.groups.read(name)
    nodes = nodes_of(group, run.objects.nodes())
    return group.weight_of(
        instance for instance, node in nodes.items() if is_true(node, "Ready") and not cordoned_for(node)
    )


def _name(node: Manifest | None) -> str:
    return name_of(node) if node else ""


def _named(node: Manifest | None, instance: str) -> str:
    return f"node {name_of(node)}" if node else f"instance {instance} without a node"
