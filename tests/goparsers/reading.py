"""The same cases as nodesmith reads them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from nodesmith.model.apimachinery.quantities import QuantityError, whole_units
from nodesmith.model.apimachinery.requirements import parse_selector
from nodesmith.model.apimachinery.times import LONGEST_GAP, CronError, last_hit, nanoseconds, parse_cron
from nodesmith_formats.manifests.documents import BadDocument, parse_document
from tests.goparsers import Case


def read_by_nodesmith(case: Case) -> Any:
    """Return what nodesmith reads, in the form of `Answer`."""
    match case.kind:
        case "schedule":
            return _newest(case.given["schedule"], datetime.fromisoformat(case.given["until"]))
        case "duration":
            return nanoseconds(case.given)
        case "quantity":
            try:
                return [whole_units(case.given), whole_units(case.given, per_unit=1000)]
            except QuantityError:
                return None
        case "yaml":
            return _scalar(case.given)
        case _:
            selector = parse_selector(case.given["selector"])
            return selector is not None and selector.matches(case.given["labels"])


def _newest(text: str, until: datetime) -> int | None:
    try:
        found = last_hit(parse_cron(text), until - LONGEST_GAP, until)
    except CronError as error:
        return 0 if "never matches" in str(error) else None
    return int(found.timestamp()) if found else 0


def _scalar(text: str) -> Any:
    is_short = not {*text} & {*".eE"} and len(text) < 10
    as_key = f"\n- {{{text}: 1}}" if is_short else ""
    try:
        return parse_document(f"- {text}{as_key}")[1]
    except BadDocument:
        return None
