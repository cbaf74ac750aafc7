"""Clients of the official Kubernetes library, for API servers whose CA may be an old one.

EKS clusters created before Kubernetes 1.17 have a CA certificate without key identifiers, and no upgrade renews it.
From Python 3.13 on, the TLS defaults set VERIFY_X509_STRICT, which refuses such certificates.
"""

from __future__ import annotations

import ssl

from kubernetes.client import ApiClient, Configuration
from urllib3.util.ssl_ import create_urllib3_context


def api_client(configuration: Configuration) -> ApiClient:
    """Return a client that checks chain, expiry and host name, but does not ask for key identifiers.

    Every client of an API server is made here. `verify_ssl=False` in the configuration still turns all checks off.
    """
    client = ApiClient(configuration)
    pool = client.rest_client.pool_manager.connection_pool_kw
    context = create_urllib3_context(cert_reqs=pool["cert_reqs"])
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not (configuration.ssl_ca_cert or configuration.ca_cert_data):
        context.load_default_certs()  # urllib3 does so only for a context of its own
    pool["ssl_context"] = context
    return client
