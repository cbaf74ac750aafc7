"""Connections to a Kubernetes API server: a pool with TLS, proxies, bearer tokens and retries.

urllib3 is always present, because botocore needs it. docs/adr/0031 explains why the official client is not used.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Mapping
from ipaddress import ip_address, ip_network
from time import monotonic, sleep
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies

from urllib3 import BaseHTTPResponse, PoolManager, ProxyManager, Timeout
from urllib3.util import make_headers, parse_url
from urllib3.util.ssl_ import create_urllib3_context

from nodesmith import __version__

_AGENT = f"nodesmith/{__version__}"
"""The API server records the name before the slash as the field manager of writes."""
_CONNECT_SECONDS = 3.0  # as for AWS in parts.py
_CONNECTIONS = 32  # the forwarder watches each kind on its own connection

Pool = TypeVar("Pool", bound=PoolManager)


class Connection:
    """Sends requests to the API server at `url`, over connections of `pool` that are kept open between requests.

    `authorization` returns the header of that name, or an empty string for none. It is called for every request,
    because tokens expire.
    """

    def __init__(self, url: str, pool: PoolManager, authorization: Callable[[], str]) -> None:
        self._url = url.rstrip("/")
        self._pool = pool
        self._authorization = authorization

    def send(
        self, method: str, path: str, headers: Mapping[str, str], body: object = None, *, read_seconds: float
    ) -> BaseHTTPResponse:
        """Send a request once, with `body` as JSON, and return the response before its body is read.

        Redirects are returned, not followed, so no other host receives the token. Raises HTTPError or OSError.
        """
        authorization = self._authorization()
        return self._pool.urlopen(
            method,
            self._url + path,
            headers={
                "User-Agent": _AGENT,
                **headers,
                **({"Authorization": authorization} if authorization else {}),
            },
            body=None if body is None else json.dumps(body).encode(),
            timeout=Timeout(connect=_CONNECT_SECONDS, read=read_seconds),
            retries=False,  # the caller decides on retries, with a back-off
            redirect=False,
            preload_content=False,
        )


def connection_pool(url: str, *, ca_pem: str = "", ca_file: str = "") -> PoolManager:
    """Return a pool for an API server, which connects through the proxy that the environment names, if any.

    `ca_pem` or `ca_file` are the trusted certificates; without either, the system's apply. The file is read again for
    each new connection, because it may be replaced.
    """
    settings: dict[str, Any] = {
        "cert_reqs": ssl.CERT_REQUIRED,
        "ca_certs": ca_file or None,
        "ca_cert_data": ca_pem or None,
        "maxsize": _CONNECTIONS,
    }
    proxy = proxy_for(url)
    if not proxy and urlsplit(url).scheme == "http":  # a simulated API server has no certificate to check
        return PoolManager(**settings)
    if not proxy:
        return accept_old_authorities(PoolManager(**settings))
    credentials = unquote(parse_url(proxy).auth or "")
    headers = make_headers(proxy_basic_auth=credentials) if credentials else None
    return accept_old_authorities(ProxyManager(proxy, proxy_headers=headers, **settings))


def accept_old_authorities(pool: Pool) -> Pool:
    """Make a pool verify chain, expiry and host name, but not require key identifiers, and return it.

    EKS clusters created before Kubernetes 1.17 have a CA certificate without key identifiers, and upgrades do not renew
    it. Since Python 3.13, the TLS defaults set VERIFY_X509_STRICT, which rejects such certificates. A pool that checks
    no certificates remains so.
    """
    settings = pool.connection_pool_kw
    context = create_urllib3_context(cert_reqs=settings["cert_reqs"])
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not (settings["ca_certs"] or settings["ca_cert_data"]):
        context.load_default_certs()  # urllib3 does so only for contexts that it creates
    settings["ssl_context"] = context
    return pool


def proxy_for(url: str) -> str:
    """Return the URL of the proxy for `url` by HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY, empty for none."""
    proxies = getproxies()
    proxy = proxies.get(urlsplit(url).scheme) or proxies.get("all") or ""
    if not proxy or _is_exempt(url, proxies.get("no", "")):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_exempt(url: str, no_proxy: str) -> bool:
    """Return whether NO_PROXY lists the host: as `*`, itself, with its port, a domain above it, or a CIDR block."""
    parts = urlsplit(url.lower())
    names = (parts.hostname or "", parts.netloc)
    for entry in filter(None, (part.strip() for part in no_proxy.lower().split(","))):
        domain = entry.lstrip(".")
        if entry == "*" or _contains(entry, names[0]):
            return True
        if any(name == domain or name.endswith(f".{domain}") for name in names):
            return True
    return False


def _contains(block: str, host: str) -> bool:
    try:
        return ip_address(host) in ip_network(block, strict=False)
    except ValueError:
        return False


# An API server declares a failure temporary with a Retry-After header on a 429 or a 5xx, which client-go retries
# as well, including writes. Without the header, a 503 is retried, and so is a kind whose watch cache is being
# filled ("storage is (re)initializing"). A 429 without the header is not temporary: it is how a disruption budget
# refuses an eviction.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 2.0
_INITIALIZING = b"storage is (re)initializing"


def send_patiently(send: Callable[[], BaseHTTPResponse], patience_seconds: float) -> BaseHTTPResponse:
    """Return the response to a request, retrying temporary failures for up to `patience_seconds`.

    `send` sends the request once; its errors propagate. If the next wait would exceed the limit, the last response is
    returned at once.
    """
    until, pause = monotonic() + patience_seconds, _FIRST_PAUSE_SECONDS
    while True:
        response = send()
        if not passes(response):
            return response
        wait = max(pause, _asked_seconds(response))
        if monotonic() + wait > until:
            return response
        response.read()  # so that the connection can be reused
        sleep(wait)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def passes(response: BaseHTTPResponse) -> bool:
    """Return whether a response is a failure that the server declares temporary."""
    if response.status != 429 and response.status < 500:
        return False
    is_said = response.status == 503 or _asked_seconds(response) > 0
    return bool(is_said or _INITIALIZING in response.data)


def _asked_seconds(response: BaseHTTPResponse) -> float:
    """Return the seconds in Retry-After, or 0 if it is missing or a date, which no API server sends."""
    header = str(response.headers.get("Retry-After") or "")
    return float(header) if header.isascii() and header.isdigit() else 0.0
