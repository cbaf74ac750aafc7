"""Checks of connect's options that run before any slow import and any request."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nodesmith import __version__
from nodesmith.errors import Rejected
from nodesmith.registration import VPC_NAME, settings_faults

_REFERENCE = re.compile(r"[\w.-]+(:\d+)?(/[\w.-]+)*(:[\w][\w.-]{0,127})?(@sha256:[0-9a-f]{64})?", re.ASCII)


def refuse_image(reference: str) -> None:
    """Raise Rejected unless `reference` is an image reference with a tag or a digest."""
    if not _REFERENCE.fullmatch(reference) or not re.search(r"(@sha256:|:[^/]+$)", reference):
        raise Rejected(
            f"--image {reference!r}: expected an image with a tag or digest, such as "
            f"123456789012.dkr.ecr.eu-west-1.amazonaws.com/nodesmith-forwarder:{__version__}"
        )


def parsed_settings(options: Sequence[str]) -> dict[str, str]:
    """Parse the values of `--setting NAME=VALUE`. Raises Rejected with all faults."""
    parsed = dict(option.partition("=")[::2] for option in options)
    faults = [f"{option!r}: expected NAME=VALUE" for option in options if "=" not in option]
    given = {name: value for name, value in parsed.items() if value}
    unknown = {name: "" for name, value in parsed.items() if not value}
    faults += settings_faults("--setting", given)
    faults += [fault for fault in settings_faults("--setting", unknown) if "unknown" in fault]
    if faults:
        raise Rejected("; ".join(faults))
    return parsed


def refuse_vpc_name(vpc: str | None) -> None:
    """Raise Rejected unless `vpc` can be the name of a VPC in cdk.json."""
    if vpc and not VPC_NAME.fullmatch(vpc):
        raise Rejected(f"--vpc {vpc!r}: expected a name in `vpcs` of cdk.json, such as shared")
