"""The processor time that a function's separate session for each cluster costs.

Fresh processes of provisioning, laid out as on Lambda, run for clusters without pods: with sessions, and alternately
with the function's own clients for all clusters. AWS is the local one behind TLS, because an STS client also has to
load the CAs and do a TLS handshake.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from select import select
from statistics import median
from threading import Thread

import botocore
from moto.sts import sts_backends

from nodesmith.keys import snapshot_key
from nodesmith.model.functions import TICK_MINUTES, Concern
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith.registration import Registration
from nodesmith.settings import role_name
from nodesmith_local.aws import LocalAws
from nodesmith_local.aws.account import Endpoint
from nodesmith_local.functions.deployment import ACCOUNT_ID, deploy, register
from tests.benchmarks.commands import firstruns
from tests.benchmarks.decisions.coldstart import laid_out
from tests.benchmarks.figures import Figure, reference_ms
from tests.fakes.sts import asked_in
from tests.servers.tls import authority, server_context

RUNS = 25
CLUSTERS = ("express", "other")
REGION = "us-east-1"
WITH, WITHOUT = "with sessions", "without"
_API_SERVER = Endpoint("http://127.0.0.1:1", "")
"""Provisioning never calls it."""


@dataclass(slots=True)
class Measured:
    """Processor time in ms of the processes of one kind, and each one's number of sessions from STS."""

    start: list[float] = field(default_factory=list)
    again: list[float] = field(default_factory=list)
    further: list[float] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)


def figures(runs: int = RUNS) -> list[Figure]:
    """Measure processes of both kinds alternately."""
    path = laid_out(Concern.PROVISIONING)
    found = {WITH: Measured(), WITHOUT: Measured()}
    with _aws() as environment:
        for _ in range(runs):
            for kind, measured in found.items():
                _measure({**environment, "PYTHONPATH": path}, measured, sessions=kind == WITH)
    reference = min(reference_ms() for _ in range(runs))
    hourly = asked_in(timedelta(days=1), every=timedelta(minutes=1)) / 24
    return [
        _added("session-start-ms", found, lambda each: each.start, 45, reference),
        _added("session-further-ms", found, lambda each: each.further, 60, reference),
        _added("session-warm-ms", found, lambda each: each.again, 1, reference),
        Figure(
            "session-warm-calls",
            max(found[WITH].asked) - len(CLUSTERS),
            "calls",
            0,
            f"to STS in {firstruns.AGAIN} runs with an existing session",
            at_least=0,  # each cluster has started one session
        ),
        Figure(
            "session-calls-hourly",
            hourly,
            "AssumeRole calls an hour",
            1.4,
            f"by a process for a cluster with a run every minute for a day; {hourly * len(TICK_MINUTES):.0f} "
            f"by a cluster's {len(TICK_MINUTES)} concerns with one process each",
        ),
    ]


def _added(
    name: str,
    found: Mapping[str, Measured],
    times: Callable[[Measured], list[float]],
    at_most: float,
    reference: float,
) -> Figure:
    """Return what sessions add to the fastest time; other processes only add time that says nothing about the code."""
    by_kind = {kind: times(measured) for kind, measured in found.items()}
    with_it, without = min(by_kind[WITH]), min(by_kind[WITHOUT])
    reported = ", ".join(f"{min(ms):.1f} ms {kind} (median {median(ms):.1f})" for kind, ms in by_kind.items())
    pairs = median(one - other for one, other in zip(by_kind[WITH], by_kind[WITHOUT], strict=True))
    note = (
        f"{reported}: {with_it / without:.2f} ×; {(with_it - without) / reference:.2f} × the reference loop;"
        f" fastest of {len(by_kind[WITH])} processes, {pairs:+.1f} ms in the median of pairs"
    )
    return Figure(name, with_it - without, "ms", at_most, note)


def _measure(environment: Mapping[str, str], measured: Measured, *, sessions: bool) -> None:
    role = f"arn:aws:iam::{ACCOUNT_ID}:role/{role_name(Concern.PROVISIONING, REGION)}"
    before = _begun()
    done = subprocess.run(
        [sys.executable, "-S", "-P", firstruns.__file__, *CLUSTERS],
        env={**environment, **({"SESSION_ROLE_ARN": role} if sessions else {})},
        capture_output=True,
        text=True,
        check=True,
    )
    reported = json.loads(done.stderr.splitlines()[-1])
    measured.start.append(reported["start"])
    measured.again.append(reported["again"])
    measured.further.append(reported["further"])
    measured.asked.append(_begun() - before)


def _begun() -> int:
    """Return how many sessions STS has started."""
    return len(sts_backends[ACCOUNT_ID]["aws"].assumed_roles)


@contextmanager
def _aws() -> Iterator[dict[str, str]]:
    """Yield the environment of the functions of a region with two clusters without pods."""
    with (
        LocalAws(REGION, cluster=CLUSTERS[0], endpoint=_API_SERVER) as aws,
        tempfile.TemporaryDirectory() as folder,
        _behind_tls(aws.url, Path(folder)) as over_tls,
    ):
        deployment = deploy(aws.client, REGION)
        for cluster in CLUSTERS:
            register(aws.client, Registration(cluster, aws.network.vpc_id, ("nodes",)))
            snapshot = encode(cluster, datetime.now(UTC), Observed())
            aws.client("s3").put_object(Bucket=deployment.bucket, Key=snapshot_key(cluster), Body=snapshot)
        yield {
            **aws.environment,
            **deployment.environment(),
            **over_tls,
            "AWS_EC2_METADATA_DISABLED": "true",
            "POWERTOOLS_TRACE_DISABLED": "true",
            "NO_PROXY": "localhost",
            "PATH": os.environ["PATH"],
        }


@contextmanager
def _behind_tls(url: str, folder: Path) -> Iterator[dict[str, str]]:
    """Serve a plain HTTP server over TLS as well, and yield the variables that lead an AWS SDK there.

    The CA to trust comes after all CAs that botocore ships.
    """
    signer, port = authority("benchmark"), int(url.rpartition(":")[2])
    context = server_context(signer, folder)
    bundle = folder / "ca.pem"
    bundle.write_bytes((Path(botocore.__file__).parent / "cacert.pem").read_bytes() + b"\n" + signer.pem)
    with socket.create_server(("127.0.0.1", 0)) as server:
        Thread(target=_accept, args=(server, context, port), daemon=True).start()
        yield {
            "AWS_ENDPOINT_URL": f"https://localhost:{server.getsockname()[1]}",
            "AWS_CA_BUNDLE": str(bundle),
        }
        server.shutdown(socket.SHUT_RDWR)


def _accept(server: socket.socket, context: ssl.SSLContext, port: int) -> None:
    with suppress(OSError):  # the server is closed
        while True:
            client, _ = server.accept()
            Thread(target=_relay, args=(client, context, port), daemon=True).start()


def _relay(client: socket.socket, context: ssl.SSLContext, port: int) -> None:
    with (
        suppress(OSError),  # a process that ends does not close the connection
        context.wrap_socket(client, server_side=True) as outside,
        socket.create_connection(("127.0.0.1", port)) as inside,
    ):
        inside.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        targets: dict[socket.socket, socket.socket] = {outside: inside, inside: outside}
        while True:
            readable = [outside] if outside.pending() else select(targets, (), ())[0]
            for source in readable:
                data = source.recv(65_536)
                if not data:
                    return
                targets[source].sendall(data)
