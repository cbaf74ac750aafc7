"""User data as a MIME document for cloud-init, which runs the parts in their order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from email.message import Message
from email.parser import Parser

from nodesmith.decisions.launch.userdata.starting import MalformedUserData, line_at
from nodesmith.model.apimachinery.problems import did_you_mean

SHELL = 'text/x-shellscript; charset="us-ascii"'
_MIME_START = re.compile(r"(?:[\w-]+:.*\n(?:[ \t].*\n)*)*?(?:MIME-Version|Content-Type):", re.IGNORECASE)
_HANDLERS = "text/part-handler"
_DEEP = "the MIME document's parts are nested too deeply"
CLOUD_INIT_TYPES = frozenset(
    {
        _HANDLERS,
        "text/cloud-boothook",
        "text/cloud-config",
        "text/cloud-config-archive",
        "text/cloud-config-jsonp",
        "text/jinja2",
        "text/plain",
        "text/upstart-job",
        "text/x-include-once-url",
        "text/x-include-url",
        "text/x-shellscript",
        "text/x-shellscript-per-boot",
        "text/x-shellscript-per-instance",
        "text/x-shellscript-per-once",
    }
)
"""The types of parts that cloud-init handles itself."""
_USUAL = "text/x-shellscript, text/cloud-config"
_ENVELOPES = frozenset(
    "application/gzip application/gzip-compressed application/gzipped application/x-compress application/x-compressed "
    "application/x-gunzip application/x-gzip application/x-gzip-compressed application/zlib application/x-zlib "
    "application/octet-stream message/rfc822 text/x-not-multipart text/x-not-shellscript".split()
)
"""Types whose content decides what cloud-init makes of a part."""


def is_mime(text: str) -> bool:
    """Return whether user data is a MIME document, whichever header comes first."""
    return _MIME_START.match(text.lstrip("\r\n")) is not None


def part(kind: str, payload: str) -> Message:
    """Return a part with this Content-Type."""
    made = Message()
    made["Content-Type"] = kind
    made.set_payload(payload)
    return made


def mime_parts(text: str, known: frozenset[str] = CLOUD_INIT_TYPES) -> list[Message]:
    """Return the parts of a MIME document. Raises MalformedUserData for one that nothing on the node would read.

    `known` are the types that something reads. A document that has its own handlers may have any type.
    """
    try:
        parts = _top_parts(Parser().parsestr(text.lstrip("\n")))
        kinds = [each.get_content_type() for outer in parts for each in outer.walk()]
    except RecursionError:
        raise MalformedUserData(_DEEP) from None
    for kind in kinds if _HANDLERS not in kinds else ():
        if kind not in known and kind not in _ENVELOPES and not kind.startswith("multipart/"):
            hint = (
                did_you_mean(kind, known) or f": use {', '.join((_USUAL, *sorted(known - CLOUD_INIT_TYPES)))}"
            )
            raise MalformedUserData(
                f"nothing on the node reads a MIME part of type {kind}{hint}", _line(text, kind)
            )
    return parts


def mime(parts: Iterable[Message]) -> str:
    """Return a MIME document of these parts."""
    made: list[Message | str] = [*parts]
    boundary, written = "//", [_written(each) for each in made if isinstance(each, Message)]
    while any(f"--{boundary}" in each for each in written):
        boundary += "/"
    document = Message()
    document["MIME-Version"] = "1.0"
    document["Content-Type"] = f'multipart/mixed; boundary="{boundary}"'
    document.set_payload(made)
    return _written(document)


def _top_parts(message: Message) -> list[Message]:
    if message.is_multipart():
        return [_bare(each) for each in message.get_payload() if isinstance(each, Message)]
    if message.get_content_maintype() == "multipart":
        raise MalformedUserData("the MIME document has no parts: its boundary occurs nowhere in the body")
    return [_bare(message)]


def _bare(message: Message) -> Message:
    """Return a part without the header that only a whole document has."""
    if not message.is_multipart():
        del message["MIME-Version"]
    return message


def _written(message: Message) -> str:
    from email.generator import Generator
    from io import StringIO

    text = StringIO()
    try:
        Generator(text, mangle_from_=False, maxheaderlen=0).flatten(message)
    except RecursionError:
        raise MalformedUserData(_DEEP) from None
    return text.getvalue()


def _line(text: str, kind: str) -> int:
    found = re.search(re.escape(kind), text, re.IGNORECASE)
    return line_at(text, found.start()) if found else 0
