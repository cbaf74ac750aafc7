"""Make the catalogue that ships in the package.

    python layers/core/build_catalog.py FACTS.json --made-at TIME

FACTS.json is `{"onDemand": {region: {"currency", "onDemandHourly": {type: price}}}, "networkBandwidthMbps":
{type: n}, "branchInterfaces": {type: n}}`. Instance types, and the zones each is offered in, come from moto's
resource files, which are EC2's own answers; those of families that moto has dropped, and EC2 still sells, from an
older version of the same files (older_types.json, which names it). There, too, are prices of types that the reference
region does not sell. The same inputs give the same bytes.

A region with prices that those files do not list (GovCloud, China) is taken to sell its types in all its zones.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "python"))

import moto.ec2
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend

from nodesmith.adapters.catalog.catalogs import EMBEDDED, FIRST_MASK, PublishedLimits, pack, write_facts
from nodesmith.adapters.catalog.pricing import instance_facts
from nodesmith.model.apimachinery.times import format_time, parse_time
from nodesmith.model.ec2.catalog import InstanceFacts

RESOURCES = Path(moto.ec2.__file__).parent / "resources"
OLDER = Path(__file__).with_name("older_types.json")
OFFERINGS = RESOURCES / "instance_type_offerings" / "availability-zone"


def main() -> None:
    """Read the inputs, write the data file."""
    parser = argparse.ArgumentParser(description="Make the catalogue that ships in the package.")
    parser.add_argument("facts", type=Path)
    parser.add_argument("--made-at", type=parse_time, required=True, help="when the prices were current")
    arguments = parser.parse_args()
    known = json.loads(arguments.facts.read_text())
    facts = read_types(known)
    content = {
        "types": write_facts(facts.values()),
        "unlisted": {
            table: {name: value for name, value in known[table].items() if name not in facts}
            for table in ("networkBandwidthMbps", "branchInterfaces")
        },
        "onDemand": {
            region: {"currency": prices["currency"], "hourly": prices["onDemandHourly"]}
            for region, prices in known["onDemand"].items()
        },
        "elsewhere": json.loads(OLDER.read_text())["elsewhere"]["hourly"],
        "regions": read_regions(facts, known["onDemand"]),
    }
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=list).encode()).hexdigest()[:16]
    data = pack({**content, "digest": digest, "madeAt": format_time(arguments.made_at)})
    EMBEDDED.write_bytes(data)
    print(f"{EMBEDDED.name}: {len(facts)} types, {len(content['regions'])} regions, {len(data):,} bytes")


def read_types(known: Mapping[str, Any]) -> dict[str, InstanceFacts]:
    """Read all usable instance types, sorted by name."""
    limits = PublishedLimits(known["networkBandwidthMbps"], known["branchInterfaces"])
    older = {one["InstanceType"]: one for one in json.loads(OLDER.read_text())["types"]}
    described = older | json.loads(gzip.decompress((RESOURCES / "instance_types.json.gz").read_bytes()))
    found = (instance_facts(described[name], limits) for name in sorted(described))
    return {facts.name: facts for facts in found if facts}


def read_regions(facts: Mapping[str, InstanceFacts], priced: Mapping[str, Any]) -> dict[str, Any]:
    """Return, by region, its zones and a character per type for the zones that offer it."""
    regions: dict[str, dict[str, set[str]]] = {}
    older = json.loads(OLDER.read_text())["zones"]
    for path in sorted(OFFERINGS.glob("*.json.gz")):
        offered: dict[str, set[str]] = {}
        for row in json.loads(gzip.decompress(path.read_bytes())):
            offered.setdefault(row["InstanceType"], set()).add(row["Location"])
        region = path.name.removesuffix(".json.gz")
        for name, zones in older.get(region, {}).items():
            offered.setdefault(name, set(zones))
        regions[region] = offered
    for region in sorted(set(priced) - set(regions)):
        zones = {zone.name for zone in RegionsAndZonesBackend.zones[region]}
        regions[region] = dict.fromkeys(priced[region]["onDemandHourly"], zones)
    return {region: region_row(region, offered, facts) for region, offered in sorted(regions.items())}


def region_row(region: str, offered: Mapping[str, set[str]], types: Iterable[str]) -> dict[str, Any]:
    """Write one region: zones with their ids, and each type's zones as a bit mask in one character."""
    zones = sorted(set().union(*offered.values()))
    ids = {zone.name: zone.zone_id for zone in RegionsAndZonesBackend.zones.get(region, ())}
    masks = (sum(1 << zones.index(zone) for zone in offered.get(name, ())) for name in types)
    return {
        "zones": [[zone, ids.get(zone, "")] for zone in zones],
        "offered": "".join(chr(FIRST_MASK + mask) for mask in masks),
    }


if __name__ == "__main__":
    main()
