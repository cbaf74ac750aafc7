"""Access to the page: only for this machine's user, in a browser that has followed the printed link.

The server listens on loopback, which every program of this machine and every web site in its browsers can reach. So a
request needs a cookie with a random token, which the link sets once. The Host header must be the page's own, so that a
site whose name resolves to 127.0.0.1 gets nothing (DNS rebinding). Only GET and HEAD are served.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from secrets import compare_digest, token_urlsafe
from threading import Lock

LOOPBACK = "127.0.0.1"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
METHODS = ("GET", "HEAD")


@dataclass(slots=True)
class Gate:
    """Checks requests to the page at `port`. `used` is called with a new link after one was followed."""

    port: int
    used: Callable[[str], None] = lambda link: None  # noqa: ARG005
    _token: str = field(default_factory=token_urlsafe, repr=False)
    _once: str = field(default_factory=token_urlsafe, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    @property
    def link(self) -> str:
        """The address that lets one browser in."""
        return f"http://{LOOPBACK}:{self.port}/enter/{self._once}"

    @property
    def cookie(self) -> str:
        """The cookie's name. Cookies are shared by all ports of a host, so it contains the port."""
        return f"nodesmith-ui-{self.port}"

    @property
    def token(self) -> str:
        """The cookie's value."""
        return self._token

    def is_own_host(self, host: str) -> bool:
        """Return whether a Host header is the page's own."""
        return host in (f"{LOOPBACK}:{self.port}", f"localhost:{self.port}")

    def lets_in(self, cookie: str) -> bool:
        """Return whether a cookie's value is right."""
        return compare_digest(cookie.encode(), self._token.encode())

    def enter(self, once: str) -> bool:
        """Return whether the last part of a link is right, and replace it by a new one if so."""
        with self._lock:
            if not compare_digest(once.encode(), self._once.encode()):
                return False
            self._once = token_urlsafe()
        self.used(self.link)
        return True
