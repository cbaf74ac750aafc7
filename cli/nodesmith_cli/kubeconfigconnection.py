"""Connections through kubeconfigs, with everything that the official client reads from them, such as exec plugins."""

from __future__ import annotations

from kubernetes.client import ApiClient, Configuration

from nodesmith.adapters.kubernetes.connection import Connection, accept_old_authorities


def connection(configuration: Configuration) -> Connection:
    """Return a connection with the endpoint, TLS settings, proxy and credentials of a loaded kubeconfig.

    All clients of the official library are created here, so that all accept old CA certificates. `verify_ssl=False`
    in the configuration still disables all checks.
    """
    pool = ApiClient(configuration).rest_client.pool_manager

    def authorization() -> str:
        token = configuration.auth_settings().get("BearerToken")
        return str(token["value"] or "") if token else ""

    return Connection(configuration.host, accept_old_authorities(pool), authorization)
