"""Images that EC2NodeClasses select, for the simulated account; a real account already has them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from moto.core import DEFAULT_ACCOUNT_ID
from moto.ssm import ssm_backends

from nodesmith.model.nodeclasses.nodeclasses import AMISelectorTerm
from nodesmith_local.aws.account import publish_alias, put_parameter, register_image

_PARAMETER_ARN = re.compile(r"arn:[\w-]+:ssm:[\w-]*:\d*:parameter")
_ARM = re.compile("arm64|aarch64", re.IGNORECASE)
_MADE = datetime(2020, 1, 1, tzinfo=UTC)


def publish_selected(region: str, kubernetes: str, term: AMISelectorTerm) -> None:
    """Publish the images that a term selects. Raises Unresolved for an alias that can have no image.

    Defaults for what the term leaves open: the image is for amd64 unless its name says arm64, and it is older than all
    images of aliases. Each wildcard becomes `x`. A term with an unfilled `${VARIABLE}` selects nothing.
    """
    if term.alias:
        publish_alias(region, kubernetes, term.alias)
        return
    texts = (term.id, term.name, term.ssm_parameter, *term.tags.values())
    if any("${" in text for text in texts):
        return
    path = _PARAMETER_ARN.sub("", term.ssm_parameter)
    if path and path in ssm_backends[DEFAULT_ACCOUNT_ID][region]._parameters:  # noqa: SLF001
        return
    description = term.name or path or term.id or "-".join(term.tags.values())
    name = re.sub("[*?]", "x", description)
    tags = {key: re.sub("[*?]", "x", value) for key, value in term.tags.items()}
    arch = "arm64" if _ARM.search(description) else "amd64"
    owner = term.owner if term.owner.isdecimal() else DEFAULT_ACCOUNT_ID
    alias = term.owner if term.owner == "amazon" else ""
    image_id = register_image(region, name, arch, _MADE, owner, alias, image_id=term.id, tags=tags)
    if path:
        put_parameter(region, path, image_id)
