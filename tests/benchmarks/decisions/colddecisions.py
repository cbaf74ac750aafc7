"""The first decision of a fresh process, in Lambda's runtime and in `nodesmith plan`.

A function's process is laid out as on Lambda, runs on Lambda's Python where this machine has it, and is pinned to one
core: with the memory that provisioning has, Lambda gives it one. It is timed from its start, as if the message that
needs it started it, until EC2 gets CreateFleet, without the time in which other processes had its core. AWS is the
local one, on another core; waiting for it counts.
"""

from __future__ import annotations

import gzip
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Any

from infra.functions.concerns import PACKING_ENVIRONMENT
from nodesmith.adapters.dynamodb.ledger import DynamoStore
from nodesmith.keys import decision_key, snapshot_key
from nodesmith.model.functions import Concern, Hint
from nodesmith.model.nodeclasses.status import SecurityGroup, Subnet
from nodesmith.observation.encoding import encode
from nodesmith.observation.mirror import WATCHED, Mirror, observed
from nodesmith.registration import Registration
from nodesmith.settings import role_name
from nodesmith_cli.planning import read_manifests
from nodesmith_formats.manifests.manifests import Document
from nodesmith_local.aws import LocalAws
from nodesmith_local.aws.account import Endpoint, make_instance_profile, register_image
from nodesmith_local.functions.deployment import ACCOUNT_ID, TABLE_NAME, deploy, register
from tests import builders
from tests.benchmarks.aws.hotpath import express_pods
from tests.benchmarks.decisions.coldstart import laid_out
from tests.benchmarks.figures import Figure, reference_ms
from tests.benchmarks.packing.markets import anything_fake
from tests.benchmarks.packing.workloads import diverse
from tests.processes.accepted import accepting
from tests.processes.lambdapython import VENV
from tests.processes.runtimeapi import Process, RuntimeProcess, executed

RUNS, WARM_RUNS = 9, 3
REGION, CORE = "us-east-1", 1
_ROOT = Path(__file__).parents[3]
_PATIENCE_SECONDS, _MANY = 60.0, 100_000
_CLUSTERS = tuple(f"cold-{number}" for number in range(WARM_RUNS + 1))
"""Clusters with the same content: a process serves the first one cold and the others warm."""
_NOWHERE = Endpoint("http://127.0.0.1:1", "")
"""Provisioning never calls the API server."""
_ARN = f"arn:aws:lambda:{REGION}:{ACCOUNT_ID}:function:nodesmith-provisioning"
_OF_LAMBDA = {
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1769",
    "AWS_LAMBDA_FUNCTION_NAME": "nodesmith-provisioning",
    "AWS_LAMBDA_FUNCTION_VERSION": "1",
    "NO_PROXY": "127.0.0.1,localhost",
    "POWERTOOLS_TRACE_DISABLED": "true",
    "SESSION_ROLE_ARN": f"arn:aws:iam::{ACCOUNT_ID}:role/{role_name(Concern.PROVISIONING, REGION)}",
    **PACKING_ENVIRONMENT,
}
_VERSION = "import platform; print(platform.python_version())"
Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cold:
    """One process: seconds until CreateFleet, of these the process's own, and of its decisions: the first, the warm."""

    seconds: float
    cpu_seconds: float
    first: float
    warm: float


def figures(runs: int = RUNS) -> list[Figure]:
    """Measure first decisions for few and for many pods, and `nodesmith plan` as a process."""
    path = os.pathsep.join(
        (laid_out(Concern.PROVISIONING), str(_ROOT / "build" / "layers" / "vendor" / "python"))
    )
    pods = [{"apiVersion": "v1", "kind": "Pod", **each} for each in express_pods().values()]
    few = [_cold(path, pods) for _ in range(runs)]
    many = [_cold(path, diverse(1000), warm=True) for _ in range(runs)]
    first, warm = min(each.first for each in many), min(each.warm for each in many)
    reference = min(reference_ms() for _ in range(runs)) / 1000
    return [
        _until_fleet("cold-20-s", few, 1.0, reference),
        _until_fleet("cold-1000-s", many, 2.0, reference),
        Figure(
            "cold-over-warm-ratio",
            first / warm,
            "× the warm decision",
            1.5,
            f"for 1,000 pods, fastest of {runs} processes: {first:.2f} s cold, {warm:.2f} s warm, that is"
            f" {first / reference:.0f} and {warm / reference:.0f} × the reference loop",
        ),
        *_plan(runs, reference),
    ]


def _until_fleet(name: str, runs: Sequence[Cold], at_most: float, reference: float) -> Figure:
    best, cpu = min(each.seconds for each in runs), min(each.cpu_seconds for each in runs)
    note = (
        f"fastest of {len(runs)} fresh processes on one core, median {median(each.seconds for each in runs):.2f} s;"
        f" {cpu:.2f} s of processor time; {best / reference:.0f} × the reference loop; Python {_version()}"
    )
    return Figure(name, best, "s", at_most, note)


def _plan(runs: int, reference: float) -> list[Figure]:
    """Measure `nodesmith plan` for 1,000 pods: processor time of the process, and of the decision as it says."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "diverse.json"
        path.write_text(
            json.dumps({"apiVersion": "v1", "kind": "List", "items": [anything_fake(), *diverse(1000)]})
        )
        found = [_plan_once(path) for _ in range(runs + 1)][1:]  # the first one may write .pyc files
    whole, decision = (min(times) for times in zip(*found, strict=True))
    return [
        Figure(
            f"plan-{what}-s",
            seconds,
            "s",
            at_most,
            f"of processor time, fastest of {runs}; {seconds / reference:.0f} × the reference loop",
        )
        for what, seconds, at_most in (("process", whole, 1.4), ("decision", decision, 0.7))
    ]


def _plan_once(path: Path) -> tuple[float, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "nodesmith_cli.main", "plan", "-f", str(path), "-o", "json"],
        env={
            "PYTHONPATH": ":".join(sys.path),
            "PYTHONPYCACHEPREFIX": str(path.parent),
            "HOME": str(path.parent),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, float(json.loads(done.stdout)["seconds"])


def _cold(path: str, pods: Sequence[Manifest], *, warm: bool = False) -> Cold:
    """Start a process for pending pods. If `warm`, it then decides the same for other clusters."""
    clusters = _CLUSTERS if warm else _CLUSTERS[:1]
    with _served(clusters, pods) as (aws, environment, bucket), tempfile.TemporaryDirectory() as folder:
        log, began = Path(folder) / "log", time.perf_counter()
        run = executed(
            _command(), Path(path.partition(os.pathsep)[0]), {**environment, "PYTHONPATH": path}, log
        )
        watches: list[_Watch] = []

        def start(api: str) -> Process:
            process = run(api)
            assert isinstance(process, subprocess.Popen)
            watches.append(_Watch(aws, process.pid))
            return process

        process = RuntimeProcess(start, _ARN)
        try:
            for cluster in clusters:
                event = {"messages": [Hint(cluster, "benchmark").to_document()]}
                answer = process.invoke(event, _PATIENCE_SECONDS)
                assert not answer.error, f"{answer.error}\n{log.read_text()}"
        finally:
            process.close()
        decided = [_decided(aws.client("s3"), bucket, cluster) for cluster in clusters]
        (watch,) = watches
        assert watch.at, f"nothing was bought\n{log.read_text()}"
    return Cold(
        watch.at - began - watch.waited_seconds,
        watch.cpu_seconds,
        decided[0],
        min(decided[1:], default=decided[0]),
    )


def _command() -> list[str]:
    """Return the command of Lambda's runtime, pinned to one core where that is possible."""
    pinned = ["taskset", "-c", str(CORE)] if shutil.which("taskset") and (os.cpu_count() or 1) > CORE else []
    return [*pinned, str(_python()), "-m", "awslambdaric", "handler.handler"]


def _python() -> Path:
    """Return Lambda's Python with the pinned packages, or this one if `make setup` has found none."""
    theirs = VENV / "bin" / "python"
    return theirs if theirs.exists() else Path(sys.executable)


def _version() -> str:
    reported = subprocess.run([_python(), "-c", _VERSION], capture_output=True, text=True, check=True)
    return reported.stdout.strip()


class _Watch(Thread):
    """Notes when EC2 gets the first CreateFleet, and the processor time that the process has taken and waited for."""

    def __init__(self, aws: LocalAws, pid: int) -> None:
        super().__init__(daemon=True)
        self._aws, self._pid = aws, pid
        self.at = self.cpu_seconds = self.waited_seconds = 0.0
        self.start()

    def run(self) -> None:
        for _ in range(int(_PATIENCE_SECONDS * 1000)):
            if self._aws.seam.calls["CreateFleet"]:
                self.at = time.perf_counter()
                threads = [
                    path.read_text().split() for path in Path(f"/proc/{self._pid}/task").glob("*/schedstat")
                ]
                self.cpu_seconds, self.waited_seconds = (
                    sum(int(each[column]) for each in threads) / 1e9 for column in (0, 1)
                )
                return
            time.sleep(0.001)


@contextmanager
def _served(
    clusters: Sequence[str], pods: Sequence[Manifest]
) -> Iterator[tuple[LocalAws, dict[str, str], str]]:
    """Yield AWS with these clusters, each with the pods pending and ready to launch; the environment; the bucket."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores - {CORE} or cores)
    try:
        with LocalAws(REGION, cluster=clusters[0], endpoint=_NOWHERE) as aws:
            deployment = deploy(aws.client, REGION)
            accepting(aws.lambdas, REGION)
            aws.seam.fail("CreateFleet", "InternalError", _MANY)  # what follows the request is not measured
            for cluster in clusters:
                _furnish(aws, deployment.bucket, cluster, pods)
            yield aws, {**aws.environment, **deployment.environment(), **_OF_LAMBDA}, deployment.bucket
    finally:
        os.sched_setaffinity(0, cores)


def _furnish(aws: LocalAws, bucket: str, cluster: str, pods: Sequence[Manifest]) -> None:
    register(aws.client, Registration(cluster, aws.network.vpc_id, ("nodes",)))
    documents = [Document(each, "benchmark", at) for at, each in enumerate((anything_fake(), *pods))]
    mirrors = {kind.kind: Mirror(kind) for kind in WATCHED}
    for document in read_manifests(
        (), [*documents, Document(builders.nodeclass_manifest(), "benchmark", 0)]
    ).documents:
        mirrors[document.manifest["kind"]].put(document.manifest)
    snapshot = encode(cluster, datetime.now(UTC), observed(mirrors.values()))
    aws.client("s3").put_object(Bucket=bucket, Key=snapshot_key(cluster), Body=snapshot)
    status = builders.nodeclass_status()
    make_instance_profile(aws.client("iam"), status.instance_profile)
    store = DynamoStore(aws.client("dynamodb"), TABLE_NAME, cluster, lambda: datetime.now(UTC))
    store.save_cluster(replace(builders.cluster_info(), name=cluster))
    subnets = tuple(Subnet(id_, zone, free_ips=4000) for zone, id_ in aws.network.subnets.items())
    images = tuple(
        replace(
            image, id=register_image(REGION, image.name, image.name.rpartition("-")[2], datetime.now(UTC))
        )
        for image in status.images
    )
    groups = (SecurityGroup(aws.network.security_group_id, "nodes"),)
    store.save_nodeclass(replace(status, subnets=subnets, security_groups=groups, images=images))
    store.save_contents({"NodePool/default": builders.content_of(anything_fake())})


def _decided(s3: Any, bucket: str, cluster: str) -> float:
    """Return the seconds of a cluster's first decision, by its record."""
    listed = s3.list_objects_v2(Bucket=bucket, Prefix=decision_key(cluster, "").rpartition("/")[0])[
        "Contents"
    ]
    keys = [each["Key"] for each in listed if not each["Key"].endswith(".snapshot.json.gz")]
    records = [
        json.loads(gzip.decompress(s3.get_object(Bucket=bucket, Key=key)["Body"].read())) for key in keys
    ]
    return max(float(each["durationsMs"]["decide"]) for each in records) / 1000
