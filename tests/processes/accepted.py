"""Functions that only record the events of their invocations, in place of the real ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from moto.core import DEFAULT_ACCOUNT_ID

from nodesmith.model.functions import Concern, Hint, hints_of
from nodesmith.settings import ALIAS, function_name
from nodesmith_local.functions.lambdas import Lambdas

if TYPE_CHECKING:
    from nodesmith_local.functions.asynchronous import AsyncInvocations


class Accepted:
    """A concern's function, by its alias, and the hints of its invocations."""

    def __init__(self, concern: Concern, region: str) -> None:
        name = function_name(concern)
        self.arn = f"arn:aws:lambda:{region}:{DEFAULT_ACCOUNT_ID}:function:{name}:{ALIAS}"
        self.hints: list[Hint] = []

    def accept(self, payload: Any, trace: str = "") -> str:
        """Accept an event, as Lambda does before it runs a function."""
        del trace
        self.hints += hints_of(payload)[0]
        return "request"

    def take(self) -> list[Hint]:
        """Return the hints received since the last call."""
        taken, self.hints = self.hints, []
        return taken


def accepting(
    lambdas: Lambdas, region: str, concerns: Iterable[Concern] = Concern
) -> dict[Concern, Accepted]:
    """Register these functions with the imitated Lambda of a region."""
    made = {concern: Accepted(concern, region) for concern in concerns}
    for each in made.values():
        lambdas.know(cast("AsyncInvocations", each))
    return made
