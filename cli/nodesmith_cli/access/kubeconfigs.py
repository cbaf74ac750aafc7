"""Kubeconfigs: the EKS clusters they contain, and how to load one and connect through it."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from nodesmith.errors import Rejected
from nodesmith_cli.access.preconditions import usual_kubeconfig

if TYPE_CHECKING:  # imported only when a kubeconfig is loaded
    from kubernetes.client import Configuration

    from nodesmith.adapters.kubernetes.connection import Connection


_ARN = re.compile(r"arn:aws[\w-]*:eks:(?P<region>[a-z0-9-]+):\d{12}:cluster/(?P<name>[\w-]+)", re.ASCII)


def regions_of(cluster: str) -> set[str]:
    """Return the regions of EKS clusters with this name in the kubeconfig, found by ARN as the AWS CLI writes it."""
    regions = set()
    for file in _files():
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        regions |= {match["region"] for match in _ARN.finditer(text) if match["name"] == cluster}
    return regions


def has_current_context() -> bool:
    """Return whether there is a kubeconfig."""
    return bool(_files())


def configuration(kubeconfig: str, context: str) -> Configuration:
    """Load a kubeconfig (empty: the default one) with a context (empty: the current one). Raises Rejected."""
    if kubeconfig and not Path(kubeconfig).expanduser().is_file():
        raise Rejected(f"--kubeconfig {kubeconfig}: no such file")
    options = {"--kubeconfig": kubeconfig, "--context": context}
    named = " ".join(f"{option} {value}" for option, value in options.items() if value)
    return load_configuration(
        str(Path(kubeconfig).expanduser()) if kubeconfig else "", context, named or "kubeconfig"
    )


def load_configuration(file: str, context: str, named: str) -> Configuration:
    """Load a kubeconfig as `configuration` does. `named` is what a message about a fault in it begins with."""
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException, load_kube_config
    from yaml import YAMLError

    made = Configuration()
    with _logged_errors() as logged:
        try:
            load_kube_config(  # type: ignore[no-untyped-call]
                config_file=file or usual_kubeconfig(), context=context or None, client_configuration=made
            )
        except (ConfigException, OSError) as error:
            raise Rejected(f"{named}: {error}") from None
        except (YAMLError, ValueError) as error:
            raise Rejected(f"{named}: not YAML: {' '.join(str(error).split())}") from None
        except (TypeError, AttributeError):  # the official client checks few types
            raise Rejected(f"{named}: not a kubeconfig: a field has a value of the wrong type") from None
    if logged and not (made.api_key or made.cert_file or made.username):
        raise Rejected(f"{named}: no credentials: {'; '.join(logged)}")
    return made


@contextmanager
def _logged_errors() -> Iterator[list[str]]:
    """Collect what is logged as an error, and keep it from standard error.

    The official client logs that an exec plugin has failed, and goes on without credentials. On a terminal, where the
    plugin's own errors are shown already, it logs a fault of its own instead, which says nothing.
    """
    messages: list[str] = []

    class Collecting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            message_text = record.getMessage()
            messages.append("the credential plugin failed" if "NoneType" in message_text else message_text)

    handler, root = Collecting(logging.ERROR), logging.getLogger()
    root.addHandler(handler)
    try:
        yield messages
    finally:
        root.removeHandler(handler)


def _files() -> list[Path]:
    return [
        path for name in usual_kubeconfig().split(os.pathsep) if (path := Path(name).expanduser()).is_file()
    ]


def connection(configuration: Configuration) -> Connection:
    """Return a connection with the endpoint, TLS settings, proxy and credentials of a loaded kubeconfig.

    All clients of the official library are created here, so that all accept old CA certificates. `verify_ssl=False`
    in the configuration still disables all checks. Everything that the official client reads from a kubeconfig works,
    such as exec plugins.
    """
    from kubernetes.client import ApiClient

    from nodesmith.adapters.kubernetes.connection import Connection, accept_old_authorities

    pool = ApiClient(configuration).rest_client.pool_manager

    def authorization() -> str:
        token = configuration.auth_settings().get("BearerToken")
        return str(token["value"] or "") if token else ""

    return Connection(configuration.host, accept_old_authorities(pool), authorization)
