"""Times in Kubernetes' format: RFC 3339 in UTC, whole seconds."""

from __future__ import annotations

from datetime import UTC, datetime


def parse_time(text: str) -> datetime:
    """Return an RFC 3339 time in UTC. A time without a zone is taken as UTC. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def is_time(text: str) -> bool:
    """Return whether a text is a time with a zone."""
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def format_time(moment: datetime) -> str:
    """Write a time in Kubernetes' format: `2026-11-21T07:28:05Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
