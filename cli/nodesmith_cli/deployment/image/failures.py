"""Translating a registry's errors: whether they are transient, their cause, and the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import requests
from dxf.exceptions import DXFAuthInsecureError, DXFDigestMismatchError, DXFUnauthorizedError

from nodesmith.errors import NodesmithError, Rejected, Transient
from nodesmith_cli.deployment.image.credentials import Credentials
from nodesmith_cli.deployment.image.references import Reference

_PASSING = {408, 425, 429}
_NOT_FOUND = 404
_OBJECT = re.compile(r"^(?:<.*?>|\w+\(host=.*?\)): ")  # urllib3 puts the connection first


@contextmanager
def failure(
    reference: Reference, credentials: Credentials | None, about: str, *, missing_is_fine: bool = False
) -> Iterator[None]:
    """Translate errors of dxf and requests into Rejected or Transient. With `missing_is_fine`, ignore a 404."""
    where, host = f"{reference.name}: {about}", reference.host
    try:
        yield
    except DXFUnauthorizedError:
        raise Rejected(f"{where}: 401: {_login_hint(credentials)}") from None
    except DXFAuthInsecureError:
        raise Rejected(f"{where}: it requires credentials, which are not sent over http: use https") from None
    except DXFDigestMismatchError as error:
        raise Rejected(f"{where}: wrong content: {error}") from None
    except requests.HTTPError as error:
        response = cast("requests.Response", error.response)  # requests always sets it
        if not (missing_is_fine and response.status_code == _NOT_FOUND):
            raise _refusal(where, response, credentials) from None
    except requests.exceptions.SSLError as error:
        plain = "; use --insecure for a registry without TLS"
        raise Rejected(f"{where}: no TLS with {host}: {_cause(error)}{plain}") from None
    except (requests.RequestException, OSError) as error:
        raise Transient(f"{where}: {host}: {_cause(error)}") from None
    except (KeyError, ValueError, TypeError) as error:
        raise Rejected(f"{where}: unexpected response from {host}: {error!r}") from None


def _refusal(where: str, response: requests.Response, credentials: Credentials | None) -> NodesmithError:
    status, said = response.status_code, _said(response)
    about = f"{where}: {status}{f': {said}' if said else ''}"
    if status in _PASSING or status >= 500:
        return Transient(about)
    who = credentials.origin if credentials else "an anonymous user"
    return Rejected(f"{about}: {who} is not allowed to do this" if status == 403 else about)


def _login_hint(credentials: Credentials | None) -> str:
    if credentials is None:
        return "no credentials found: run docker login, or use --username with --password-stdin"
    return f"the registry refused the credentials from {credentials.origin}"


def _said(response: requests.Response) -> str:
    """Return the errors in a registry's response: {"errors": [{"code": …, "message": …}]}."""
    try:
        errors = response.json()["errors"]
        return "; ".join(f"{error.get('code', '')} {error.get('message', '')}".strip() for error in errors)
    except (ValueError, KeyError, TypeError, AttributeError):
        return response.reason or ""


def _cause(error: BaseException) -> str:
    """Return the innermost cause, which is the most specific one."""
    inner = error.args[0] if error.args and isinstance(error.args[0], BaseException) else None
    inner = inner or getattr(error, "reason", None)
    if isinstance(inner, BaseException) and inner is not error:
        return _cause(inner)
    return _OBJECT.sub("", str(error)) or type(error).__name__
