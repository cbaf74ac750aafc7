"""The time until a replacement is launched when the first attempts at an interruption fail, without ticks."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, assert_never

from nodesmith.errors import Transient
from nodesmith.model.ec2.launches import LaunchOutcome, LaunchRequest
from nodesmith.model.functions import Concern
from tests.scenarios.crashes import throttled
from tests.scenarios.interruptions import Cluster
from tests.smallworld.world import Boundaries, Killed, pod_manifest

Attempt = Literal["raises", "dies", "dies in CreateFleet", "is throttled"]
FAILED = 3
_LONGEST = timedelta(minutes=10)


class DeathInCreateFleet(Boundaries):
    """Makes a function die after it has committed a launch, and before it calls EC2."""

    def cross(self, where: str) -> None:
        if where == "before FakeCloud.launch":
            raise Killed(where)


class RetriedWorld(Cluster):
    """A world in which the first attempts at a notice fail."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt, self._left = attempt, 0
        super().__init__({f"web-{n}": pod_manifest(f"web-{n}", "3") for n in range(2)}, seed=0)
        self.settle()
        self.concerns = ()

    def replaced_after(self) -> timedelta:
        """Interrupt one of two nodes; return how long after the notice its replacement was launched."""
        warned_at, known = self.now, set(self.cloud.instances)
        self._left = FAILED
        if self._attempt == "is throttled":
            self.cloud.script += [self._throttle] * FAILED
        self.warn(self.claims()[0].instance_id)
        while set(self.cloud.instances) == known:
            assert self.now - warned_at < _LONGEST, "nothing was launched"
            self.step()
        (bought,) = set(self.cloud.instances) - known
        return self.cloud.instances[bought].launched_at - warned_at

    def _throttle(self, request: LaunchRequest) -> LaunchOutcome:
        return throttled(request)

    def _invoke(self, concern: Concern, boundaries: Boundaries) -> None:
        if concern is Concern.INTERRUPTION and self._left:
            self._left -= 1
            match self._attempt:
                case "raises":
                    raise Transient("DynamoDB is away")
                case "dies":
                    raise Killed
                case "dies in CreateFleet":
                    boundaries = DeathInCreateFleet(look=None)
                case "is throttled":
                    pass
                case _:
                    assert_never(self._attempt)
        super()._invoke(concern, boundaries)
