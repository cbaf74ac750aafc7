"""Requests of web pages, which the local system's servers refuse: they listen on loopback without any credentials.

A browser names the page's origin in each request that changes something at another origin. A page whose own name
resolves to 127.0.0.1 is of the same origin, but then the Host header has that name (DNS rebinding).
"""

from __future__ import annotations

from email.message import Message
from ipaddress import ip_address
from urllib.parse import urlsplit

REFUSAL = "web pages may not use the local system"


def is_of_web_page(headers: Message) -> bool:
    """Return whether a request may have been sent by a web page."""
    return headers.get("Origin") is not None or not _is_address(headers.get("Host") or "localhost")


def _is_address(host: str) -> bool:
    """Return whether a Host header is an address or `localhost`, with or without a port."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or bool(ip_address(name))
    except ValueError:
        return False
