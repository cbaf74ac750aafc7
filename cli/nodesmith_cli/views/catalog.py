"""Reading a catalogue from the chosen source, filtering it, and printing it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from nodesmith.adapters.catalog.catalogs import embedded_catalog, embedded_prices
from nodesmith.errors import Rejected, Transient
from nodesmith.model.apimachinery.labels import CAPACITY_TYPES, ON_DEMAND, SPOT
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.ec2.instancetypes import instance_types
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith_formats.catalogfiles import ARCHITECTURES, list_types, read_catalog_file
from nodesmith_formats.prices import estimate_mark

_PIPED_WIDTH = 132


@dataclass(frozen=True, slots=True)
class CatalogRequest:
    """What to list. An empty field does not filter. Raises Rejected for an unknown architecture or capacity type."""

    patterns: tuple[str, ...] = ()
    arch: str = ""
    zone: str = ""
    capacity_type: str = ""
    sort: str = "name"

    def __post_init__(self) -> None:
        for option, value, allowed in (
            ("--arch", self.arch, ARCHITECTURES),
            ("--capacity-type", self.capacity_type, CAPACITY_TYPES),
        ):
            if value and value not in allowed:
                hint = did_you_mean(value, allowed) or f", use one of {', '.join(allowed)}"
                raise Rejected(f"{option}: unknown value {value!r}{hint}")


def read_catalog(source: str, region: str) -> tuple[Catalog, list[str]]:
    """Return the catalogue and its warnings. Raises Rejected or Transient if it cannot be read."""
    if source == "embedded":
        return embedded_catalog(region), []
    if source == "aws":
        return _ask_aws(region)
    file = Path(source)
    try:
        data, made_at = file.read_bytes(), datetime.fromtimestamp(file.stat().st_mtime, UTC)
    except OSError as error:
        raise Rejected(f"--source {source}: {error.strerror}; use embedded, aws, or a file") from error
    catalog, problems = read_catalog_file(data, made_at, f"--source {source}")
    return catalog, [str(problem) for problem in problems]


def select(catalog: Catalog, request: CatalogRequest) -> list[dict[str, Any]]:
    """Return the matching types as JSON data, with only their matching offerings."""
    where = catalog.region or "the file"
    for pattern in request.patterns:
        if not any(fnmatchcase(name, pattern) for name in catalog.facts):
            raise Rejected(
                f"{pattern!r}: no such instance type in {where}{did_you_mean(pattern, frozenset(catalog.facts))}"
            )
    types = list_types(catalog, instance_types(catalog, NodeConfiguration()))
    zones = sorted({offer["zone"] for instance_type in types for offer in instance_type["offerings"]})
    if request.zone and request.zone not in zones:
        hint = did_you_mean(request.zone, zones) or f"; zones: {', '.join(zones) or 'none'}"
        raise Rejected(f"--zone {request.zone}: no such zone in {where}{hint}")
    listed = []
    for instance_type in types:
        if request.patterns and not any(
            fnmatchcase(instance_type["name"], pattern) for pattern in request.patterns
        ):
            continue
        offerings = [offer for offer in instance_type["offerings"] if _offers(offer, request)]
        restricted = request.zone or request.capacity_type
        if request.arch in ("", instance_type["arch"]) and (offerings or not restricted):
            listed.append({**instance_type, "offerings": offerings})
    if not listed:
        raise Rejected(f"no instance type in {where} matches")
    return sorted(listed, key=_by_price) if request.sort == "price" else listed


def print_json(listed: Sequence[Mapping[str, Any]]) -> None:
    """Print a JSON list, one type per line."""
    lines = ",\n ".join(json.dumps(instance_type) for instance_type in listed)
    sys.stdout.write(f"[{lines}]\n")


def print_table(catalog: Catalog, listed: Sequence[Mapping[str, Any]]) -> None:
    """Print a table, with its legend below."""
    from rich.table import Table  # scripts take JSON, and need not wait for it

    from nodesmith_cli.output.safeconsole import SafeConsole

    sign = "$" if catalog.currency == "USD" else catalog.currency
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("TYPE", no_wrap=True)
    table.add_column("ARCH")
    for name in ("VCPU", "MEMORY", "PODS", "GPU"):
        table.add_column(name, justify="right")
    table.add_column("ZONES")
    table.add_column(f"ON-DEMAND {sign}/H", justify="right")
    table.add_column(f"SPOT {sign}/H", justify="right")
    for instance_type in listed:
        table.add_row(*_row(instance_type))
    console = SafeConsole(markup=False, width=None if sys.stdout.isatty() else _PIPED_WIDTH)
    console.print(table)
    made = f"{catalog.region or 'file'}, prices of {catalog.made_at:%Y-%m-%d}"
    console.print(f"instance types: {len(listed)} · {made} · - not offered", style="dim", highlight=False)
    if any(offer["estimated"] for instance_type in listed for offer in instance_type["offerings"]):
        reason = "from another region's on-demand price, or for spot as 0.35 of the on-demand price"
        console.print(f"~ estimated {reason}", style="dim", highlight=False)


def _row(instance_type: Mapping[str, Any]) -> tuple[str, ...]:
    gpus = sum(n for name, n in instance_type["capacity"].items() if name.endswith(("/gpu", "/gaudi")))
    zones = sorted({offer["zone"] for offer in instance_type["offerings"] if offer["available"]})
    return (
        instance_type["name"],
        instance_type["arch"],
        str(instance_type["vcpus"]),
        f"{round(instance_type['memoryMiB'] / 1024, 2):g} GiB",
        str(instance_type["maxPods"]),
        str(gpus) if gpus else "",
        _short(zones),
        _price(instance_type, ON_DEMAND),
        _price(instance_type, SPOT),
    )


def _price(instance_type: Mapping[str, Any], capacity_type: str) -> str:
    """Return the lowest price of an available offering, with `~` before an estimate."""
    offers = [o for o in instance_type["offerings"] if o["available"] and o["capacityType"] == capacity_type]
    if not offers:
        return "-"
    lowest = min(offers, key=lambda offer: (offer["priceHourly"], offer["estimated"]))
    return f"{estimate_mark(lowest['estimated'])}{lowest['priceHourly']:.4f}"


def _short(zones: list[str]) -> str:
    """Shorten us-east-1a us-east-1b to us-east-1[ab]. Other names stay unchanged."""
    stems = {zone[:-1] for zone in zones}
    if len(zones) > 1 and len(stems) == 1:
        return f"{stems.pop()}[{''.join(zone[-1] for zone in zones)}]"
    return " ".join(zones)


def _offers(offer: Mapping[str, Any], request: CatalogRequest) -> bool:
    return request.zone in ("", offer["zone"]) and request.capacity_type in ("", offer["capacityType"])


def _by_price(instance_type: Mapping[str, Any]) -> tuple[float, str]:
    prices = [offer["priceHourly"] for offer in instance_type["offerings"] if offer["available"]]
    return min(prices, default=float("inf")), instance_type["name"]


class _InMemory:
    """A catalogue store that starts with the embedded catalogue and keeps a written one in memory."""

    def __init__(self, region: str) -> None:
        self.region = region
        self.written: Catalog | None = None

    def latest(self) -> Catalog:
        return embedded_catalog(self.region)

    def write(self, catalog: Catalog) -> None:
        self.written = catalog


def _ask_aws(region: str) -> tuple[Catalog, list[str]]:
    """Refresh the catalogue from AWS. For a call that fails, keep the embedded data and return a warning.

    Raises Rejected or Transient, with the first reason, if all calls fail.
    """
    from nodesmith.adapters.catalog.pricing import aws_market
    from nodesmith.controllers.region.catalog import refresh_catalog
    from nodesmith_cli.access.awsclients import aws_client

    aws_client("ec2", region)  # fails at once without credentials
    catalogs, now = _InMemory(region), datetime.now(UTC)
    try:
        refresh_catalog(aws_market(region), catalogs, embedded_prices(region), now)
    except (Transient, Rejected) as error:
        if catalogs.written is None:
            _, _, reasons = str(error).partition("; ")
            raise type(error)(f"--source aws: {reasons.partition('; ')[0] or error}") from None
        return catalogs.written, [str(error)]
    return catalogs.written or catalogs.latest(), []
