"""Certificates of API servers that are accepted.

Python 3.13 and later reject certificates without key identifiers by default. Lambda runs such a Python, so these tests
run the clients on one too.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.processes.interpreters import environment, other_python
from tests.servers.tls import authority, serving
from tests.servers.tlsclients import CLIENTS

_STRICT_SINCE = (3, 13)
_REFUSALS = {
    "wrong host name": "Hostname mismatch",
    "expired": "certificate has expired",
    "other CA": "unable to get local issuer certificate",
}
Outcomes: TypeAlias = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcomes]:
    """Return results by client and server."""
    folder = tmp_path_factory.mktemp("tls")
    ours, other = authority(), authority("another")
    ca = folder / "ca.crt"
    ca.write_bytes(ours.pem)
    with ExitStack() as servers:
        ports = {
            "no key identifiers": servers.enter_context(serving(ours, folder)),
            "wrong host name": servers.enter_context(serving(ours, folder, host="another.example")),
            "expired": servers.enter_context(serving(ours, folder, expired=True)),
            "other CA": servers.enter_context(serving(other, folder)),
        }
        cases = {name: {"url": f"https://localhost:{port}", "ca": str(ca)} for name, port in ports.items()}
        python = _strict_python()
        command = [str(python), "-m", "tests.servers.tlsclients", json.dumps(cases)]
        run = subprocess.run(
            command, env=environment(python, "0"), capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stderr
        yield json.loads(run.stdout)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_certificate_without_key_identifiers_is_accepted(client: str, outcomes: Outcomes) -> None:
    assert outcomes[client]["no key identifiers"] == "ok"


@pytest.mark.parametrize("case", _REFUSALS)
@pytest.mark.parametrize("client", CLIENTS)
def test_chain_expiry_and_host_name_are_still_checked(client: str, case: str, outcomes: Outcomes) -> None:
    assert _REFUSALS[case].lower() in outcomes[client][case].lower()


def test_all_clients_and_pools_are_created_where_old_certificates_are_accepted() -> None:
    root = Path(__file__).resolve().parents[3]
    sources = {
        file.relative_to(root).as_posix(): file.read_text()
        for room in ("layers/core", "functions", "forwarder", "cli", "formats", "local")
        for file in (root / room).rglob("*.py")
    }
    found = {
        name for name, text in sources.items() if re.search(r"\b(ApiClient|PoolManager|ProxyManager)\(", text)
    }

    assert found == {
        "layers/core/python/nodesmith/adapters/kubernetes/connection.py",
        "cli/nodesmith_cli/access/kubeconfigs.py",
    }
    assert all("accept_old_authorities(" in sources[name] for name in found)


def _strict_python() -> Path:
    """Return a Python that rejects such certificates by default, or this one, with a warning, if there is none."""
    this, other = Path(sys.executable), other_python()
    if sys.version_info >= _STRICT_SINCE:
        return this
    if other and tuple(map(int, other.name.removeprefix("python").split("."))) >= _STRICT_SINCE:
        return other
    warnings.warn(
        "no Python 3.13 or newer is here: clients were NOT tried with its TLS defaults", stacklevel=2
    )
    return this
