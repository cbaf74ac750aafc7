"""A large cluster in which a service fails every minute, for days.

The fleet of `tests.scenarios.weeks`, with the faults of `tests.scenarios.chaos`. One in 60 lasts five minutes and
one in a day an hour; all others are over before the next begins. Meanwhile nodes die, are interrupted or fall sick,
and pods come and go. What the world itself remembers of the past is dropped every hour, so that what grows is the
product.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

from nodesmith.errors import Transient
from nodesmith.model.functions import Concern
from nodesmith_local.chaos.faults import HALVES, OF_ANY_SERVICE, Fault, FaultKind, Service
from tests import builders
from tests.scenarios.chaos import DRAINED_WITHIN, SECONDS, ChaosWorld, Unwell
from tests.scenarios.weeks import DAY, LIVING, MINUTE, Fleet
from tests.smallworld.world import STEP, TICK, Killed

HOUR, QUARTER = timedelta(hours=1), timedelta(minutes=15)
EVENT_EVERY = 5
"""Minutes from one event in the cluster to the next."""
MUTE_EVERY = 360
"""Minutes from one instance that never joins to the next: three of them in a row rightly pause launches."""
PATIENCE = timedelta(minutes=90)
"""How long a pod may wait for a node, or a claim for its end. The longest fault takes an hour."""
SPARE = 0.1
"""The share of nodes that a cluster may have beyond those that it had, and the share of the price."""
SPARE_NODES = 10
"""The number that it may have in any case."""


class _Boundaries(Unwell):
    """The boundaries of both worlds: calls are counted, and meet faults."""

    world: Soak

    def cross(self, where: str) -> None:
        self.world.meter.cross(where)
        super().cross(where)


class Soak(ChaosWorld, Fleet):
    """A fleet of which something fails every minute."""

    def __init__(self, nodes: int, seed: int = 7) -> None:
        super().__init__(nodes, seed)
        self.boundaries = _Boundaries(self)
        self.concerns = tuple(sorted(LIVING))
        self.broken: list[str] = []
        self.total_launched = self._soaked = 0
        self._waits: dict[str, datetime] = {}
        self._known: set[str] = set()
        self.usual_alive = nodes

    def begin_soak(self) -> None:
        """Settle, and take what there is then as the measure of what may be there later.

        A cluster launches a limited number of nodes an hour, so a large one takes hours.
        """
        self.observe()
        self.live(QUARTER)
        while self.waiting() and self.now < builders.NOW + DAY:
            self.live(QUARTER)
        self.usual_usd = self.hourly_usd()
        self.usual_alive = len(self.cloud.alive())
        self._known = set(self.cloud.instances)

    def soak(self, minutes: int) -> None:
        """Live for so many minutes with a fault in each, and check the invariants after each."""
        for number in range(self._soaked, self._soaked + minutes):
            self.begin([self._drawn(number)])
            if number % EVENT_EVERY == 0:
                self._happen()
            if number % MUTE_EVERY == MUTE_EVERY - 1:
                self._never_joins(self)
            self.live(MINUTE)
            self.check()
            if number % 60 == 59:
                self.forget_the_past()
        self._soaked += minutes

    def _drawn(self, number: int) -> Fault:
        """Draw the fault of a minute from the same table as the benchmark of single faults."""
        service, kind = self._fate.choice(list(Service)), self._fate.choice(OF_ANY_SERVICE)
        seconds = SECONDS[2 if number % 1440 == 720 else 1 if number % 60 == 30 else 0]
        cut = HALVES[self._fate.randrange(2)] if kind is FaultKind.PARTITIONED else frozenset[str]()
        return Fault(service, kind, seconds, cut)

    def _happen(self) -> None:
        events = (self._dies, self._is_taken, self._falls_sick, self._runs_out)
        self._fate.choice((*events, *[self._pods_change] * 4, *[self._function_dies] * 2))(self)

    def end_soak(self) -> None:
        """Live for two hours without faults, and check that nothing is left to do."""
        self.live(2 * HOUR)
        self.check()
        self.forget_the_past()
        self.broken += [f"left over: {each}" for each in self.unsettled()]
        usd = self.hourly_usd()
        if usd > self.usual_usd * (1 + SPARE):
            self.broken.append(f"{usd:.2f} USD an hour in the end, {self.usual_usd:.2f} before")

    # How time goes

    def step(self) -> None:
        """Let one step of time pass, during a call that is slow; ticks come when the call is over."""
        for concern in sorted(self._deliver()):
            self.run(concern)
        self._pass(self.now + STEP)

    def _ticked(self) -> set[Concern]:
        """Return the functions whose tick has come, unless a fault keeps dispatch from waking them."""
        before = self._minute
        try:
            with self.calling(Concern.DISPATCH):
                if int((self.now - builders.NOW) / MINUTE) != before:
                    for service in (Service.SCHEDULER, Service.SSM, Service.LAMBDA):
                        self.call(service, "before")
        except (Transient, Killed):
            self._minute = int((self.now - builders.NOW) / MINUTE)
            return set()
        return super()._ticked()

    def _pass(self, until: datetime) -> None:
        super()._pass(until)
        self.most_alive = max(self.most_alive, len(self.cloud.alive()))

    # What is forbidden meanwhile

    def note_forced(self) -> None:
        """Excuse budgets on Nodes whose kubelet is gone, too: no pod can end there before its instance does."""
        if not self.cluster.violations:
            return
        super().note_forced()
        broken, lost = self.cluster.violations, self._on_lost_kubelets()
        self.excused |= {each for each in broken if each.split(":")[0].rpartition(" ")[2] in lost}

    def _note_haste(self) -> None:
        """Excuse pods on Nodes whose kubelet is gone: repair ends such Nodes without grace, as Karpenter does."""
        before = len(self.harm)
        super()._note_haste()
        lost = self._on_lost_kubelets()
        self.excused |= {each for each in self.harm[before:] if each.split(" ")[0] in lost}

    def _on_lost_kubelets(self) -> set[str]:
        """Return the pods on Nodes whose kubelet is gone."""
        return {name for name, pod in self.pods.items() if pod["spec"].get("nodeName") in self._sick}

    def check(self) -> None:
        """Record what has broken since the last check."""
        broken = [*self.harm, *self.cluster.violations]
        self.broken += [each for each in broken if each not in self.excused]
        self.broken += [f"{n} × a healthy node was terminated ({why})" for why, n in self.causes.items()]
        self.harm.clear()
        self.cluster.violations.clear()
        self.causes.clear()
        if not any(self.now < each.until + DRAINED_WITHIN for each in self.lasting):
            self.excused.clear()
        self.lasting = [each for each in self.lasting if each.until > self.now - 2 * TICK]
        alive = self.cloud.alive()
        if len(alive) > self.usual_alive * (1 + SPARE) + SPARE_NODES:
            self.broken.append(f"{len(alive)} instances at once, {self.usual_alive} before")
        claims = Counter(each.claim for each in alive if each.claim)
        self.broken += [f"{count} instances of {name}" for name, count in claims.items() if count > 1]
        self._check_waits()

    def _check_waits(self) -> None:
        """Record what waits for too long, once each."""
        waiting = {f"pod {name}" for name in self.waiting()}
        waiting |= {f"claim {c.name}, {c.phase}," for c in self.store.claims.values() if c.is_ending}
        self._waits = {each: self._waits.get(each, self.now) for each in sorted(waiting)}
        late = [each for each, since in self._waits.items() if since <= self.now - PATIENCE]
        self.broken += [f"{each} waits since {self._waits[each]}" for each in late]
        for each in late:
            self._waits[each] = self.now + DAY

    def stored_bytes(self) -> int:
        """Return the size of the bucket's objects. Booked hours and days stay in it for good."""
        return sum(map(len, self.blobs.objects.values()))

    # What the world forgets

    def forget_the_past(self) -> None:
        """Drop what only the fakes remember: calls, messages, Events, records, and instances that ended."""
        for calls in (self.cloud.calls, self.cluster.calls, self.cluster.events, self.hints.sent):
            calls.clear()
        self.store.decisions.clear()
        self.store.departures = {
            name: each for name, each in self.store.departures.items() if self.now <= each.kept_until
        }
        self.blobs.puts.clear()
        for key in [key for key in self.blobs.objects if "/decisions/" in key]:
            del self.blobs.objects[key]
        self._forget_instances()
        self.second.forget_warnings()
        self._repeated &= {event for _, event in self.incoming}
        names = {*self.wanted, *self.pods}
        self._specs = {name: spec for name, spec in self._specs.items() if name in names}
        self._labels = {name: labels for name, labels in self._labels.items() if name in names}
        for kept in self.blobs.kept.values():
            del kept[:-1]

    def _forget_instances(self) -> None:
        """Drop instances that ended, unless a claim names them or a call for them may still be repeated."""
        cloud = self.cloud
        self.total_launched += len(cloud.instances.keys() - self._known)
        needed = {each.instance_id for each in self.store.claims.values()}
        needed |= {name.removeprefix("node-") for name in self.cluster.nodes}
        needed |= {
            i.id for i in cloud.instances.values() if i.is_alive or i.launched_at > self.now - 2 * HOUR
        }
        for known in (cloud.tags, cloud.stopping_since, cloud.started_at, cloud._made, cloud.instances):
            for each in known.keys() - needed:
                del known[each]
        kept = {
            t: reported for t, reported in cloud._tokens.items() if any(i.id in needed for i in reported[1])
        }
        cloud._tokens = kept
        self.terminations = Counter({id_: n for id_, n in self.terminations.items() if id_ in needed})
        self._known, self._mute = set(cloud.instances), self._mute & needed
