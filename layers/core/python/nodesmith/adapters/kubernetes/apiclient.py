"""Clients of the official Kubernetes library that also accept old CA certificates.

EKS clusters created before Kubernetes 1.17 have a CA certificate without key identifiers, and upgrades do not renew it.
Since Python 3.13, the TLS defaults set VERIFY_X509_STRICT, which rejects such certificates.
"""

from __future__ import annotations

import ssl

from kubernetes.client import ApiClient, Configuration
from urllib3.util.ssl_ import create_urllib3_context


def api_client(configuration: Configuration) -> ApiClient:
    """Return a client that verifies chain, expiry and host name, but does not require key identifiers.

    All clients of API servers are created here. `verify_ssl=False` in the configuration still disables all checks.
    """
    client = ApiClient(configuration)
    pool = client.rest_client.pool_manager.connection_pool_kw
    context = create_urllib3_context(cert_reqs=pool["cert_reqs"])
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not (configuration.ssl_ca_cert or configuration.ca_cert_data):
        context.load_default_certs()  # urllib3 does so only for contexts that it creates
    pool["ssl_context"] = context
    return client
