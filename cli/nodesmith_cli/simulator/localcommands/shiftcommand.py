"""`nodesmith local shift`: start or end a zonal shift of a running local system.

Its simulation of Application Recovery Controller holds the shift. Unlike EKS, it does not cordon the nodes of the zone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.apimachinery.times import duration_seconds
from nodesmith_cli.simulator.localcommands.interruptcommand import contexts_of
from nodesmith_formats.localsystem.reaching import Reached, default_kubeconfig, reach

_OK = 0
_DURATION = re.compile(r"(?:\d+[hm])+", re.ASCII)
_LONGEST = timedelta(days=3)
_ZONE_LABEL = "topology.kubernetes.io/zone"


def shift(zone: str, *, lasting: str, end: bool, kubeconfig: Path | None, context: str = "") -> int:
    """Start or end a shift of the clusters, and print what to look at. Raises Rejected with the remedy."""
    minutes = _minutes(lasting)
    system = reach(kubeconfig or default_kubeconfig())
    clusters = [system.clusters[each] for each in contexts_of(system, context)]
    name, id_ = _zone(system, zone)
    arc = system.client("arc-zonal-shift")
    resources = {cluster: _resource(arc, cluster) for cluster in clusters}
    if end:
        _end(arc, resources, name, id_)
    else:
        _start(arc, resources, name, id_, minutes)
    status = f"nodesmith status --kubeconfig {system.kubeconfig}"
    print(f"  {status}   # shows it within a minute of the cluster's time")
    print(
        f"  kubectl {'uncordon' if end else 'cordon'} -l {_ZONE_LABEL}={name}   # what EKS does to its nodes"
    )
    return _OK


def _start(arc: Any, resources: Mapping[str, Mapping[str, Any]], name: str, id_: str, minutes: int) -> None:
    from botocore.exceptions import ClientError

    for cluster, resource in resources.items():
        try:
            started = arc.start_zonal_shift(
                resourceIdentifier=resource["arn"],
                awayFrom=id_,
                expiresIn=f"{minutes}m",
                comment="nodesmith local shift",
            )
        except ClientError as error:
            said = error.response["Error"]["Message"]
            raise Rejected(f"cluster {cluster}: {said}: end it with --end first") from error
        print(
            f"cluster {cluster} is shifted away from {name} ({id_}) until {started['expiryTime']:%H:%M:%S} UTC"
        )


def _end(arc: Any, resources: Mapping[str, Mapping[str, Any]], name: str, id_: str) -> None:
    ended = False
    for cluster, resource in resources.items():
        for zonal_shift in resource["zonalShifts"]:
            if zonal_shift["awayFrom"] == id_:
                arc.cancel_zonal_shift(zonalShiftId=zonal_shift["zonalShiftId"])
                print(f"the shift of cluster {cluster} away from {name} ({id_}) has ended")
                ended = True
    if not ended:
        away = sorted(
            {
                zonal_shift["awayFrom"]
                for resource in resources.values()
                for zonal_shift in resource["zonalShifts"]
            }
        )
        raise Rejected(f"{name} ({id_}): nothing is shifted away from it{_instead(away)}")


def _instead(away: Iterable[str]) -> str:
    named = ", ".join(away)
    return f": shifted away from is {named}" if named else ", or from any other zone"


def _resource(arc: Any, cluster: str) -> Mapping[str, Any]:
    pages = arc.get_paginator("list_managed_resources").paginate()
    arn = next((item["arn"] for page in pages for item in page["items"] if item["name"] == cluster), "")
    if not arn:
        raise Rejected(f"cluster {cluster}: it runs no more: start `nodesmith local up` again")
    found: Mapping[str, Any] = arc.get_managed_resource(resourceIdentifier=arn)
    return found


def _zone(system: Reached, zone: str) -> tuple[str, str]:
    """Return a zone's name and id, given one of them. Raises Rejected."""
    zones = system.client("ec2").describe_availability_zones()["AvailabilityZones"]
    known = {entry["ZoneName"]: entry["ZoneId"] for entry in zones}
    for name, id_ in known.items():
        if zone in (name, id_):
            return name, id_
    raise Rejected(
        f"{zone}: no zone of {system.region}{did_you_mean(zone, known) or f', there is {_all(known)}'}"
    )


def _all(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _minutes(text: str) -> int:
    if not _DURATION.fullmatch(text):
        raise Rejected(f"--for {text!r}: write a duration such as 30m or 2h")
    lasting = timedelta(seconds=duration_seconds(text) or 0)
    if not timedelta(0) < lasting <= _LONGEST:
        raise Rejected(f"--for {text}: a shift lasts at most three days: use 72h or less")
    return int(lasting / timedelta(minutes=1))
