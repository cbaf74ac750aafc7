"""Snapshots of clusters of up to 15,000 nodes and 300,000 pods: their size, and what writing and reading them takes.

The forwarder's memory and processor time are those of a process of its own, started as in its image. An API server
that generates its pages lists the cluster to it and then sends it new pods; moto takes what it writes.
"""

from __future__ import annotations

import json
import math
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
from moto.server import ThreadedMotoServer

from nodesmith.observation.decoding import Reader, decode
from nodesmith.observation.encoding import encode
from nodesmith.observation.mirror import BUDGETS, NODECLAIMS, NODES, PODS, WATCHED, WatchedKind
from nodesmith.observation.observed import Observed
from nodesmith.observation.reduction.objects import reduce_budget, reduce_node
from nodesmith.observation.reduction.pods import reduce_pod
from nodesmith_forwarder.changes import Changes
from nodesmith_forwarder.clock import SystemClock
from nodesmith_forwarder.recording import Recorder
from nodesmith_forwarder.windows import Pace
from nodesmith_forwarder.world import World
from nodesmith_local.functions.deployment import TABLE_NAME, deploy
from nodesmith_local.functions.lambdas import Lambdas
from tests.benchmarks.figures import Figure, median_ms, reference_ms
from tests.builders import NOW
from tests.integration.forwarder.test_process import CREDENTIALS, free_port, mounted
from tests.objects.clusters import Manifest, budget, cluster, deployment_pod, node, rolled
from tests.processes.accepted import accepting

NODES_OF_ONE, PODS_OF_ONE, DEPLOYMENTS = 1000, 20_000, 200
SIZES = (1500, 5000, 15_000)
PODS_A_NODE, NODES_A_DEPLOYMENT = 20, 5
NEW_PODS, ROUNDS = 50, 10
REPEATS = 9
_TICKS = os.sysconf("SC_CLK_TCK")
_BOOKMARK = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1"}}}
_PATIENCE_SECONDS = 900.0


def figures() -> list[Figure]:
    """Measure a cluster that is written whole, and larger ones, which are written as deltas."""
    return [*_whole(), *_large()]


def _whole() -> list[Figure]:
    made = cluster(NODES_OF_ONE, PODS_OF_ONE, DEPLOYMENTS)
    reduced = [reduce_pod(pod) for pod in made["pods"]]
    observed = Observed(
        pods=[pod for pod in reduced if pod is not None],
        nodes=[reduce_node(node) for node in made["nodes"]],
        poddisruptionbudgets=[reduce_budget(budget) for budget in made["poddisruptionbudgets"]],
    )
    data = encode("bench", NOW, observed)
    written, _ = median_ms(lambda: _ms(lambda: encode("bench", NOW, observed)), REPEATS)
    middle, note = median_ms(lambda: _ms(lambda: decode(data)), REPEATS)
    shapes = len({pod.shape for pod in decode(data).pods})
    about = f"{NODES_OF_ONE} nodes, {PODS_OF_ONE} pods, {shapes} shapes; written in {written:.0f} ms"
    return [
        Figure("snapshot-1000-bytes", len(data), "bytes", 2_000_000, about),
        Figure("snapshot-1000-read-ms", middle, "ms", 300, note),
    ]


def _ms(what: Callable[[], object]) -> float:
    started = time.process_time()
    what()
    return (time.process_time() - started) * 1000


def _large() -> list[Figure]:
    measured = [_Measured(size) for size in SIZES]
    with _region() as bucket:
        used = [_forwarder(size, bucket) for size in SIZES]
    last, (peak, _) = measured[-1], used[-1]
    reference = reference_ms()
    times = {
        "whole written": [each.base_ms for each in measured],
        "delta written": [each.delta_ms for each in measured],
        "read cold": [each.cold_ms for each in measured],
        "read warm": [each.warm_ms for each in measured],
    }
    reported = "; ".join(
        f"{name} {ms[-1]:.1f} ms ({ms[-1] / reference:.2f} × the reference loop), exponent {_exponent(ms):.2f}"
        for name, ms in times.items()
    )
    spent = [ms for _, ms in used]
    churn = ", ".join(f"{ms:.0f} ms at {size}" for ms, size in zip(spent, SIZES, strict=True))
    about = f"{NEW_PODS} new pods; the base has {last.base_bytes / 1000:.0f} kB; {reported}"
    grows = f"processor time of the process for {NEW_PODS} new pods: {churn}; exponent {_exponent(spent):.2f}"
    return [
        Figure("delta-kb", last.delta_bytes / 1000, "kB", 100, about),
        Figure(f"forwarder-{SIZES[-1]}-mib", peak, "MiB", 600, f"largest resident size; {grows}"),
    ]


def _exponent(values: list[float]) -> float:
    """Return the slope of values over sizes on logarithmic scales: 0 if they are constant, 1 if they are linear."""
    xs, ys = [math.log(size) for size in SIZES], [math.log(max(value, 0.01)) for value in values]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)


# A cluster of any size, of which each object is made on its own.


def _nodeclaim(number: int) -> Manifest:
    shown = node(number, rolled(number))
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "lastTransitionTime": "2026-11-20T09:00:00Z"}
        for kind in ("Initialized", "Launched", "Ready", "Registered")
    ]
    requirements = [
        {"key": key, "operator": "In", "values": [value]}
        for key, value in shown["metadata"]["labels"].items()
    ]
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    return {
        "metadata": {"name": f"default-{number:05d}", "uid": f"00000000-0000-4000-8000-{number:012d}"},
        "spec": {"nodeClassRef": reference, "requirements": requirements, "expireAfter": "720h"},
        "status": {
            "providerID": shown["spec"]["providerID"],
            "nodeName": shown["metadata"]["name"],
            "allocatable": shown["status"]["allocatable"],
            "capacity": shown["status"]["capacity"],
            "conditions": conditions,
        },
    }


@lru_cache
def _names(size: int) -> list[str]:
    return [node(number, rolled(number))["metadata"]["name"] for number in range(size)]


def _pod(number: int, size: int, *, is_new: bool = False) -> Manifest:
    dice = rolled(number)
    home = "" if is_new else _names(size)[dice.randrange(size)]
    return deployment_pod(number % (size // NODES_A_DEPLOYMENT), dice, home)


def _objects(kind: WatchedKind, size: int) -> tuple[int, Callable[[int], Manifest]]:
    """Return how many objects of a kind there are, and what makes each."""
    apps = size // NODES_A_DEPLOYMENT
    makers: dict[str, tuple[int, Callable[[int], Manifest]]] = {
        NODES.name: (size, lambda n: node(n, rolled(n))),
        NODECLAIMS.name: (size, _nodeclaim),
        BUDGETS.name: (apps, lambda n: budget(n, PODS_A_NODE * NODES_A_DEPLOYMENT)),
        PODS.name: (PODS_A_NODE * size, lambda n: _pod(n, size)),
    }
    return makers.get(kind.name, (0, lambda _: {}))


class _Measured:
    """What snapshots of a cluster of some size take, in this process."""

    def __init__(self, size: int) -> None:
        changes, clock = Changes(), SystemClock()
        world = World(clock, Pace(), changes)
        recorder = Recorder("bench", changes, world.whole)
        for kind in WATCHED:
            count, made = _objects(kind, size)
            world.put(kind, (json.loads(json.dumps(made(number))) for number in range(count)))
            world.mark(kind, current=True)

        def write() -> Any:
            taken = world.take()
            return recorder.encoded(clock.now(), taken.part if taken else None)

        started = time.process_time()
        base = write()
        self.base_ms, self.base_bytes = (time.process_time() - started) * 1000, len(base.base)
        heads, times = [], []
        for turn in range(3):
            first = (PODS_A_NODE * size) + turn * NEW_PODS
            world.put(PODS, [_pod(number, size, is_new=True) for number in range(first, first + NEW_PODS)])
            started = time.process_time()
            heads.append(write().head)
            times.append((time.process_time() - started) * 1000)
        self.delta_ms, self.delta_bytes = sorted(times)[1], len(heads[0])
        reader = Reader()
        read = [
            _ms(lambda head=head: reader.read(reader.completed(head, "bench", lambda _: base.base)))  # type: ignore[misc]
            for head in heads
        ]
        self.cold_ms, self.warm_ms = read[0], read[-1]


# The forwarder as a process.


class _Server:
    """An API server with a generated cluster, which sends the pods in `pushed` to the watch of pods."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.pushed: queue.Queue[list[Manifest]] = queue.Queue()
        self.stopped = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True

    def __enter__(self) -> _Server:
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self._http.shutdown()
        self._http.server_close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        url = urlsplit(request.path)
        query = parse_qs(url.query)
        kind = next((each for each in WATCHED if url.path == each.path), None)
        if kind is None or (kind.custom and kind != NODECLAIMS):
            request.send_error(404)
        elif "watch" in query:
            self._watch(request, is_pods=kind == PODS)
        else:
            self._list(request, kind, int(query.get("continue", ["0"])[0]), int(query["limit"][0]))

    def _list(self, request: BaseHTTPRequestHandler, kind: WatchedKind, start: int, limit: int) -> None:
        count, made = _objects(kind, self._size)
        end = min(start + limit, count)
        about = {"resourceVersion": "1", **({"continue": str(end)} if end < count else {})}
        body = json.dumps({"metadata": about, "items": [made(n) for n in range(start, end)]}).encode()
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def _watch(self, request: BaseHTTPRequestHandler, *, is_pods: bool) -> None:
        request.send_response(200)
        request.end_headers()
        try:
            while not self.stopped.is_set():
                events: list[Any] = [_BOOKMARK]
                try:
                    pods = self.pushed.get(timeout=20) if is_pods else []
                    events = [{"type": "ADDED", "object": _versioned(pod)} for pod in pods] or events
                except queue.Empty:
                    pass
                request.wfile.write(b"".join(json.dumps(each).encode() + b"\n" for each in events))
                request.wfile.flush()
                if not is_pods:
                    self.stopped.wait(20)
        except OSError:
            return  # the forwarder has stopped


def _versioned(pod: Manifest) -> Manifest:
    return {**pod, "metadata": {**pod["metadata"], "resourceVersion": "2"}}


@contextmanager
def _region() -> Iterator[str]:
    """Serve AWS, and yield the name of its bucket."""
    before = dict(os.environ)
    os.environ.update(CREDENTIALS)
    server = ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    os.environ["AWS_ENDPOINT_URL"] = "http://{}:{}".format(*server.get_host_and_port())
    lambdas = Lambdas()
    try:
        bucket = deploy(boto3.client, "us-east-1").bucket
        accepting(lambdas, "us-east-1")
        with lambdas.answering():
            yield bucket
    finally:
        server.stop()
        os.environ.clear()
        os.environ.update(before)


def _forwarder(size: int, bucket: str) -> tuple[float, float]:
    """Return the largest resident size of a forwarder, in MiB, and its processor time for 50 new pods, in ms."""
    s3, name = boto3.client("s3"), f"bench-{size}"
    with (
        tempfile.TemporaryDirectory() as folder,
        _Server(size) as server,
        Path(folder, "log").open("wb") as log,
    ):
        environment = {
            **mounted(server, Path(folder)),  # type: ignore[arg-type]  # it needs a socket alone
            **{key: os.environ[key] for key in ("PATH", "AWS_ENDPOINT_URL", *CREDENTIALS)},
            "TABLE_NAME": TABLE_NAME,
            "CLUSTER_NAME": name,
            "AWS_REGION": "us-east-1",
            "BUCKET_NAME": bucket,
            "HEALTH_PROBE_PORT": str(free_port()),
        }
        command = [sys.executable, "-m", "nodesmith_forwarder"]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)
        try:

            def written() -> list[str]:
                found = s3.list_objects_v2(Bucket=bucket, Prefix=f"clusters/{name}/snapshot").get(
                    "Contents", ()
                )
                return sorted(f"{each['Key']} {each['ETag']}" for each in found)

            seen = _changed(written, [], process)
            time.sleep(5)  # the first hints and the first heartbeat
            before = _spent(process.pid)
            for turn in range(ROUNDS):
                first = PODS_A_NODE * size + turn * NEW_PODS
                seen = written()
                server.pushed.put([_pod(n, size, is_new=True) for n in range(first, first + NEW_PODS)])
                _changed(written, seen, process)
            time.sleep(1)
            return _peak(process.pid), (_spent(process.pid) - before) / ROUNDS * 1000
        finally:
            process.kill()
            process.wait()


def _changed(read: Callable[[], list[str]], before: list[str], process: subprocess.Popen[bytes]) -> list[str]:
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until and process.poll() is None:
        if (found := read()) != before:
            return found
        time.sleep(0.5)
    raise RuntimeError(f"the forwarder wrote nothing new, its status is {process.poll()}")


def _spent(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _peak(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
