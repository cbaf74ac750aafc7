"""The steps of moves: a closed union; one that nobody carries out fails the type check."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.ledger.moves import Move


@dataclass(frozen=True, slots=True)
class Taint:
    """Close these claims' Nodes to new pods; look again after `wait`."""

    move: Move
    claims: tuple[NodeClaim, ...]
    wait: timedelta


@dataclass(frozen=True, slots=True)
class Await:
    """Nothing to do yet. `wait` is None where others wake us; `for_claims` are those waited for."""

    move: Move
    wait: timedelta | None = None
    for_claims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LookAgain:
    """The second look is due."""

    move: Move


@dataclass(frozen=True, slots=True)
class Conclude:
    """Everything that replaces the sources is ready."""

    move: Move


@dataclass(frozen=True, slots=True)
class EndSources:
    """Let these claims end; they are as they are from then on."""

    move: Move
    claims: tuple[NodeClaim, ...]


@dataclass(frozen=True, slots=True)
class Abandon:
    """It is not to be. `failed` tells that what was to replace its sources is not to be had."""

    move: Move
    why: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class TidyUp:
    """Let these replacements, which nobody uses, end; they are as they are from then on."""

    move: Move
    claims: tuple[NodeClaim, ...]


@dataclass(frozen=True, slots=True)
class ForgetMove:
    """Nothing is left to be done or remembered."""

    move: Move


Step: TypeAlias = Taint | Await | LookAgain | Conclude | EndSources | Abandon | TidyUp | ForgetMove
