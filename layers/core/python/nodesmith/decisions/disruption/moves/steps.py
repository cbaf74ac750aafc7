"""The steps of moves: a closed union, so that the type checker reports a step without an implementation."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.ledger.moves import Move


@dataclass(frozen=True, slots=True)
class Taint:
    """Taint the Nodes of these claims against new pods; look again after `wait`."""

    move: Move
    claims: tuple[NodeClaim, ...]
    wait: timedelta


@dataclass(frozen=True, slots=True)
class Await:
    """Nothing to do yet. `wait` is None if an event ends the wait; `for_claims` are replacements not yet ready."""

    move: Move
    wait: timedelta | None = None
    for_claims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LookAgain:
    """The validation is due."""

    move: Move


@dataclass(frozen=True, slots=True)
class Conclude:
    """All replacements are ready."""

    move: Move


@dataclass(frozen=True, slots=True)
class EndSources:
    """Terminate these claims, which have the state to be written."""

    move: Move
    claims: tuple[NodeClaim, ...]


@dataclass(frozen=True, slots=True)
class Abandon:
    """Abandon the move. `failed` is True if its replacements are not available."""

    move: Move
    why: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class TidyUp:
    """Terminate these unused replacements, which have the state to be written."""

    move: Move
    claims: tuple[NodeClaim, ...]


@dataclass(frozen=True, slots=True)
class ForgetMove:
    """Delete the move: nothing is left to be done or remembered."""

    move: Move


Step: TypeAlias = Taint | Await | LookAgain | Conclude | EndSources | Abandon | TidyUp | ForgetMove
