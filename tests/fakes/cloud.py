"""EC2 in memory: a Cloud with its guarantees (idempotency, capacity, tags) that fails on demand. Not thread-safe."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from types import MappingProxyType

from nodesmith.decisions.launch import launch_obstacle, matched
from nodesmith.errors import Transient
from nodesmith.model.apimachinery.labels import ARCH, AWS_DOMAIN
from nodesmith.model.apimachinery.requirements import Requirements, requirement
from nodesmith.model.commands import Owned, OwnedKind
from nodesmith.model.ec2.instancetypes import needs_dedicated
from nodesmith.model.ec2.launches import (
    Instance,
    Launched,
    LaunchOutcome,
    LaunchRequest,
    LaunchTemplate,
    NoCapacity,
    OfferingKey,
    Override,
    Refused,
    Shortfall,
    StartRefusal,
    TemplateMissing,
)
from nodesmith.model.ec2.notices import STATES, Notice
from nodesmith.model.ec2.zonalshifts import ZonalShift
from nodesmith.model.karpenter.ownership import (
    CLUSTER_TAG,
    FLEET_TAG,
    MANAGED_BY_TAG,
    NODECLAIM_TAG,
    claim_tags,
)
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import (
    ClusterInfo,
    Image,
    NodeClassStatus,
    SecurityGroup,
    StatusCondition,
    Subnet,
)

CLUSTER = ClusterInfo(
    "express", "https://api.express.test", "Q0E=", "10.100.0.0/16", "1.33", dns_ip="10.100.0.10"
)
SUBNETS = tuple(Subnet(f"subnet-{zone}", f"us-east-1{zone}", free_ips=4000) for zone in "abcdf")
_NO_ACCELERATOR = (
    requirement(f"{AWS_DOMAIN}/instance-gpu-count", "DoesNotExist"),
    requirement(f"{AWS_DOMAIN}/instance-accelerator-count", "DoesNotExist"),
)
IMAGES = tuple(
    Image(f"ami-{arch}", f"al2023-{arch}", Requirements.of(requirement(ARCH, "In", [arch]), *_NO_ACCELERATOR))
    for arch in ("amd64", "arm64")
)
_READY = (
    "SubnetsReady",
    "SecurityGroupsReady",
    "AMIsReady",
    "InstanceProfileReady",
    "CapacityReservationsReady",
    "PlacementGroupReady",
    "ValidationSucceeded",
)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the port, with its subjects: names of templates or claims, or a NodeClass."""

    method: str
    about: tuple[str, ...]


def _nothing(call: Call) -> None:
    """Do nothing."""


@dataclass(slots=True)
class FakeCloud:
    """A Cloud for one cluster.

    `stock` maps patterns such as `spot m5.large in us-east-1a` or `spot c* in *` to instances left; the first pattern
    that matches a pool applies; a pool without a pattern never runs out. `raise_before` and `raise_after` are called
    with each Call and may raise: before it has an effect, or after it (the answer is lost). Each of `answers` replaces
    a claim's outcome once; `script` holds the outcomes of the next requests, whatever their claims. A `forgetful` cloud
    does not remember client tokens, so it launches another instance for a repeated one. Instances appear in
    descriptions only `shown_after` their launch: EC2's API is eventually consistent.
    """

    cluster: ClusterInfo = CLUSTER
    statuses: dict[str, NodeClassStatus] = field(default_factory=dict)
    stock: dict[str, int] = field(default_factory=dict)
    raise_before: Callable[[Call], None] = _nothing
    raise_after: Callable[[Call], None] = _nothing
    answers: dict[str, LaunchOutcome] = field(default_factory=dict)
    script: list[Callable[[LaunchRequest], LaunchOutcome]] = field(default_factory=list)
    forgetful: bool = False
    shown_after: timedelta = timedelta()
    in_fleets_after: timedelta = timedelta()
    """The age from which an instance can also be found by the tag of its fleet."""
    clock: Callable[[], datetime] = lambda: datetime(2026, 11, 21, 8, tzinfo=UTC)
    calls: list[Call] = field(default_factory=list)
    templates: dict[str, LaunchTemplate] = field(default_factory=dict)
    instances: dict[str, Instance] = field(default_factory=dict)
    tags: dict[str, Mapping[str, str]] = field(default_factory=dict)
    made_at: dict[str, datetime] = field(default_factory=dict)
    """Creation times of launch templates, by name."""
    loose: dict[str, Owned] = field(default_factory=dict)
    """Instance profiles, and unattached volumes and interfaces, by id."""
    of_others: dict[str, Owned] = field(default_factory=dict)
    """The same of other clusters in the account, by id. They can be removed, but `owned` does not show them."""
    reported: dict[str, Notice] = field(default_factory=dict)
    """Notices that EC2 has issued about instances, by id."""
    shifts: tuple[ZonalShift, ...] | None = ()
    """The zonal shifts of the cluster; None if ARC cannot be read."""
    stopping_since: dict[str, datetime] = field(default_factory=dict)
    """When instances were asked to stop, by id."""
    started_at: dict[str, datetime] = field(default_factory=dict)
    """When stopped instances were last started, by id."""
    _made: dict[str, str] = field(default_factory=dict)
    """The call that launched each instance."""
    _tokens: dict[str, tuple[object, list[Instance], tuple[Shortfall, ...]]] = field(default_factory=dict)

    def ensure_templates(self, templates: Sequence[LaunchTemplate]) -> None:
        call = self._begin("ensure_templates", *(template.name for template in templates))
        for template in templates:
            self.templates.setdefault(template.name, template)
            self.made_at.setdefault(template.name, self.clock())
        self.raise_after(call)

    def launch(self, requests: Sequence[LaunchRequest], *, repeated: bool = False) -> list[LaunchOutcome]:
        del repeated  # the fake recognises tokens itself, and repeats the answer
        call = self._begin("launch", *(request.claim for request in requests))
        calls: dict[str, list[LaunchRequest]] = {}
        for request in requests:
            calls.setdefault(request.call, []).append(request)
        outcomes = {o.claim: o for alike in calls.values() for o in self._outcomes(alike)}
        self.raise_after(call)
        return [outcomes[request.claim] for request in requests]

    def instances_of(
        self, claims: Collection[str], known: Mapping[str, str] = MappingProxyType({})
    ) -> Mapping[str, tuple[Instance, ...]]:
        call = self._begin("instances_of", *sorted(claims))
        found: dict[str, tuple[Instance, ...]] = {}
        for instance in self._shown().values():
            if instance.claim in claims:
                found[instance.claim] = (*found.get(instance.claim, ()), instance)
        for claim in claims:
            if claim not in found and known.get(claim) in self._shown():
                found[claim] = (replace(self.instances[known[claim]], claim=claim),)
        self.raise_after(call)
        return found

    def fleet_instances(self, fleets: Collection[str]) -> Mapping[str, tuple[Instance, ...]]:
        call = self._begin("fleet_instances", *sorted(fleets))
        found: dict[str, tuple[Instance, ...]] = {}
        for instance in self._shown().values():
            if instance.fleet in fleets and self.clock() - instance.launched_at >= self.in_fleets_after:
                found[instance.fleet] = (*found.get(instance.fleet, ()), instance)
        self.raise_after(call)
        return found

    def tag(self, instance: str, tags: Mapping[str, str]) -> None:
        call = self._begin("tag", instance, *sorted(tags))
        if instance in self.instances:
            self.tags[instance] = {**self.tags[instance], **tags}
            claim = tags.get(NODECLAIM_TAG, self.instances[instance].claim)
            self.instances[instance] = replace(self.instances[instance], claim=claim)
        self.raise_after(call)

    def owned_instances(self) -> list[Instance]:
        call = self._begin("owned_instances")
        name = self.cluster.name
        ours = [
            i
            for i in self._shown().values()
            if i.is_alive and {CLUSTER_TAG, MANAGED_BY_TAG} <= self.tags[i.id].keys()
        ]
        found = [i for i in ours if self.tags[i.id][CLUSTER_TAG] == name == self.tags[i.id][MANAGED_BY_TAG]]
        self.raise_after(call)
        return found

    def living(self, instances: Collection[str]) -> frozenset[str]:
        call = self._begin("living", *sorted(instances))
        found = frozenset(i.id for i in self._shown().values() if i.is_alive and i.id in instances)
        self.raise_after(call)
        return found

    def notices(self, instances: Collection[str]) -> list[Notice]:
        call = self._begin("notices", *sorted(instances))
        found = [self.reported[each] for each in sorted(instances) if each in self.reported]
        shown = self._shown()
        known = [shown[each] for each in sorted(instances) if each in shown]
        found += [
            Notice(STATES[i.state], i.id, self.clock(), f"EC2 shows the instance as {i.state}")
            for i in known
            if i.state in STATES
        ]
        self.raise_after(call)
        return found

    def owned(self, kind: OwnedKind) -> list[Owned]:
        call = self._begin("owned", kind)
        found = [owned for owned in self.loose.values() if owned.kind is kind]
        if kind is OwnedKind.LAUNCH_TEMPLATE:
            found = [Owned(kind, f"lt-{name}", name, self.made_at[name]) for name in self.templates]
        self.raise_after(call)
        return found

    def remove(self, owned: Owned) -> None:
        call = self._begin("remove", owned.kind, owned.id)
        self.loose.pop(owned.id, None)
        self.of_others.pop(owned.id, None)
        if owned.kind is OwnedKind.LAUNCH_TEMPLATE:
            self.templates.pop(owned.name, None)
            self.made_at.pop(owned.name, None)
        self.raise_after(call)

    def terminate(self, instances: Collection[str]) -> None:
        call = self._begin("terminate", *sorted(instances))
        for instance_id in instances:
            if instance_id in self.instances:
                self.become(instance_id, "terminated")
        self.raise_after(call)

    def stop(self, instance: str) -> None:
        call = self._begin("stop", instance)
        if instance in self.instances and self.instances[instance].state in ("pending", "running"):
            self.become(instance, "stopping")
            self.stopping_since[instance] = self.clock()
        self.raise_after(call)

    def start(self, instances: Collection[str]) -> Mapping[str, StartRefusal]:
        call = self._begin("start", *sorted(instances))
        refused = {}
        for id_ in sorted(instances):
            instance = self.instances.get(id_)
            if instance is None or instance.state in ("running", "pending"):
                continue
            pool = OfferingKey(instance.capacity_type, instance.instance_type, instance.zone)
            if instance.state != "stopped":
                refused[id_] = StartRefusal("IncorrectInstanceState", f"it is {instance.state}")
            elif not self._take(pool):
                refused[id_] = StartRefusal("InsufficientInstanceCapacity", "none left", is_short=True)
            else:
                self.become(id_, "running")
                self.started_at[id_] = self.clock()
        self.raise_after(call)
        return refused

    def cluster_info(self) -> ClusterInfo:
        call = self._begin("cluster_info", self.cluster.name)
        self.raise_after(call)
        return self.cluster

    def resolve(
        self, nodeclass: EC2NodeClass, cluster: ClusterInfo, now: datetime, pools: Sequence[Requirements] = ()
    ) -> NodeClassStatus:
        """Return the status in `statuses`, or else a ready one with the NodeClass's hash and generation."""
        call = self._begin(
            "resolve", nodeclass.name, *(["dedicated"] if pools and all(map(needs_dedicated, pools)) else [])
        )
        self.raise_after(call)
        status = self.statuses.get(nodeclass.name) or ready_status(nodeclass, cluster, now)
        return replace(status, content=nodeclass.content)

    def zonal_shifts(self, now: datetime) -> tuple[ZonalShift, ...] | None:
        try:
            self.raise_after(self._begin("zonal_shifts", self.cluster.name))
        except Transient:
            return None
        if self.shifts is None:
            return None
        return tuple(shift for shift in self.shifts if shift.holds(now))

    def alive(self) -> list[Instance]:
        """Return the instances that incur cost, except those whose tags name another cluster."""
        own = self.cluster.name
        return [
            i for i in self.instances.values() if i.is_alive and self.tags[i.id].get(CLUSTER_TAG, own) == own
        ]

    def become(self, instance_id: str, state: str) -> None:
        """Move an instance to another of EC2's states."""
        before = self.instances[instance_id]
        groups = ("pending", "running"), ("stopping", "stopped"), ("shutting-down", "terminated")
        stays = any(before.state in group and state in group for group in groups)
        since = before.state_since if stays else None if state in groups[0] else self.clock()
        self.instances[instance_id] = replace(before, state=state, state_since=since)

    def _shown(self) -> Mapping[str, Instance]:
        """Return the instances that EC2 describes by now, by id: all of them unless `shown_after` delays that."""
        if not self.shown_after:
            return self.instances
        since = self.clock() - self.shown_after
        return {i.id: i for i in self.instances.values() if i.launched_at <= since}

    def _begin(self, method: str, *about: str) -> Call:
        call = Call(method, about)
        self.calls.append(call)
        self.raise_before(call)
        return call

    def _outcomes(self, alike: Sequence[LaunchRequest]) -> list[LaunchOutcome]:
        """Return the outcomes of one call for the requests that share it."""
        if any(request.claim in self.answers for request in alike):
            return [self.answers.pop(request.claim) for request in alike]
        if self.script:
            answer = self.script.pop(0)
            return [answer(request) for request in alike]
        return self._answered(alike)

    def _launch(self, request: LaunchRequest) -> LaunchOutcome:
        return self._answered([request])[0]

    def _answered(self, alike: Sequence[LaunchRequest]) -> list[LaunchOutcome]:
        first = alike[0]
        asked = first.overrides, first.capacity_type, first.reservations, _common_tags(first)
        known = None if self.forgetful else self._tokens.get(first.call)
        if known is not None and known[0] != asked:
            return [Refused(r.claim, "LaunchFailed", "IdempotentParameterMismatch") for r in alike]
        if known is None:
            if any(override.template not in self.templates for override in first.overrides):
                return [TemplateMissing(request.claim) for request in alike]
            known = asked, *self._fleet(first)
            self._tokens[first.call] = known
        _, launched, short = known
        return [self._dealt(request, launched, short) for request in alike]

    def _dealt(
        self, request: LaunchRequest, launched: list[Instance], short: tuple[Shortfall, ...]
    ) -> LaunchOutcome:
        instance = matched(request.share, launched) if request.share else next(iter(launched), None)
        return Launched(request.claim, instance, short) if instance else NoCapacity(request.claim, short)

    def _fleet(self, request: LaunchRequest) -> tuple[list[Instance], tuple[Shortfall, ...]]:
        """Launch as many of the requested instances as capacity allows, the cheapest first."""
        rows = sorted(request.overrides, key=lambda o: (o.price_hourly_usd, o.instance_type, o.zone))
        launched: list[Instance] = []
        short: dict[OfferingKey, Shortfall] = {}
        for _ in range(request.share.size if request.share else 1):
            for override in rows:
                pool = OfferingKey(request.capacity_type, override.instance_type, override.zone)
                if pool not in short and self._take(pool):
                    launched.append(self._instance(request, override))
                    break
                short[pool] = Shortfall(pool, "InsufficientInstanceCapacity")
        return launched, tuple(short.values())

    def _take(self, pool: OfferingKey) -> bool:
        pattern = next((p for p in self.stock if fnmatchcase(str(pool), p)), None)
        if pattern is None:
            return True
        if self.stock[pattern] == 0:
            return False
        self.stock[pattern] -= 1
        return True

    def _instance(self, request: LaunchRequest, override: Override) -> Instance:
        before = sum(instance_call == request.call for instance_call in self._made.values())
        named = f"{request.call}/{before}" if before else request.call
        instance = Instance(
            id=f"i-{hashlib.sha256(named.encode()).hexdigest()[:17]}",
            claim="" if request.share else request.claim,
            instance_type=override.instance_type,
            zone=override.zone,
            capacity_type=request.capacity_type,
            image_id=str(self.templates[override.template].data["ImageId"]),
            state="pending",
            launched_at=self.clock(),
            subnet_id=override.subnet_id,
            template_id=f"lt-{override.template}",
            fleet=request.share.fleet if request.share else "",
        )
        interfaces = self.templates[override.template].data.get("NetworkInterfaces") or ()
        groups = tuple(sorted(group for each in interfaces[:1] for group in each["Groups"]))
        described = replace(instance, private_dns_name=f"node-{instance.id}", security_groups=groups)
        self.instances[instance.id] = described  # CreateFleet's answer does not include this
        self._made[instance.id] = request.call
        self.tags[instance.id] = _common_tags(request)
        return instance


def _common_tags(request: LaunchRequest) -> dict[str, str]:
    """Return the tags that the launch itself sets."""
    if request.share is None:
        return dict(request.tags)
    own = claim_tags(request.claim, request.tags)
    common = {key: value for key, value in request.tags.items() if key not in own}
    return {**common, FLEET_TAG: request.share.fleet}


def ready_status(nodeclass: EC2NodeClass, cluster: ClusterInfo, now: datetime) -> NodeClassStatus:
    """Return the status of a NodeClass that resolved to one subnet per zone, unless its own content forbids it."""
    obstacle = launch_obstacle(nodeclass, cluster)
    conditions = [StatusCondition(kind, "True", kind, since=now) for kind in _READY]
    if obstacle:
        conditions[-1] = StatusCondition(_READY[-1], "False", obstacle.reason, obstacle.message, now)
    return NodeClassStatus(
        nodeclass.name,
        nodeclass.generation,
        nodeclass.hash,
        now,
        SUBNETS,
        (SecurityGroup("sg-nodes", "nodes"),),
        IMAGES,
        f"{cluster.name}_profile",
        tuple(conditions),
        content=nodeclass.content,
    )
