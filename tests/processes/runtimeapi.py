"""Lambda's Runtime API for one process, which polls for invocations and reports their results.

https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html, reduced to what the runtime of one function needs.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

INIT_SECONDS = 60  # Lambda allows 10 for a start, on an idle machine
_END_SECONDS = 10
_PATH = "/2018-06-01/runtime"


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of an invocation: `error` is empty, or the error's type and message."""

    payload: Any
    error: str = ""


@dataclass(slots=True)
class _Invocation:
    event: bytes
    timeout_seconds: float
    trace: str
    arn: str
    taken: threading.Event = field(default_factory=threading.Event)
    id: str = field(default_factory=lambda: str(uuid4()))


class Process(Protocol):
    """The interface of a process. `wait` is called once; it returns the exit status, if that is known."""

    def wait(self) -> int | None: ...

    def kill(self) -> None: ...

    def terminate(self) -> None: ...


Start = Callable[[str], Process]
"""Starts a process whose Runtime API is at an address, `host:port`."""


def executed(command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path) -> Start:
    """Return a start function that runs `command` in `folder` with only `environment`; its output goes to `log`."""

    def start(api: str) -> Process:
        with log.open("ab") as output:
            return subprocess.Popen(
                command,
                cwd=folder,
                env={**environment, "AWS_LAMBDA_RUNTIME_API": api},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    return start


class RuntimeProcess:
    """A process with its own Runtime API: one execution environment of a function.

    `arn` is the function's, as it is usually invoked. Times are in real seconds.
    """

    def __init__(self, start: Start, arn: str) -> None:
        self._arn = arn
        self._work: queue.SimpleQueue[_Invocation | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()
        self._api = _Server(("127.0.0.1", 0), _runtime_api(self._work, self._answers))
        threading.Thread(target=self._api.serve_forever, name="runtime-api", daemon=True).start()
        host, port = self._api.server_address[:2]
        self._process = start(f"{host!s}:{port}")
        self._status: int | None = None
        self._ended = threading.Event()
        threading.Thread(target=self._wait, name="runtime-process", daemon=True).start()

    @property
    def is_alive(self) -> bool:
        return not self._ended.is_set()

    def invoke(
        self, event: Mapping[str, Any], timeout_seconds: float, trace: str = "", arn: str = ""
    ) -> Answer:
        """Invoke once and wait for the outcome: an answer, the end of the process, or the end of its time.

        `trace` is the trace header of the invocation, empty for none; `arn` is what was invoked, empty for the usual.
        """
        invocation = _Invocation(json.dumps(event).encode(), timeout_seconds, trace, arn or self._arn)
        self._work.put(invocation)
        started = time.monotonic()
        while not invocation.taken.wait(0.01):
            if not self._answers.empty():
                return self._answer(0)
            if time.monotonic() - started > INIT_SECONDS:
                self.kill()
                return Answer(None, f"Sandbox.Timedout: no work was asked for within {INIT_SECONDS} seconds")
        return self._answer(timeout_seconds)

    def kill(self) -> None:
        """Kill the process, whatever it is doing."""
        self._process.kill()
        if not self._ended.wait(_END_SECONDS):
            raise TimeoutError(f"the process did not end within {_END_SECONDS} seconds")

    def close(self) -> None:
        """End the process, if it still runs, and its API."""
        self._process.terminate()
        if not self._ended.wait(_END_SECONDS):
            self.kill()
        self._work.put(None)
        self._api.shutdown()
        self._api.server_close()

    def _answer(self, seconds: float) -> Answer:
        try:
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            self.kill()
            return Answer(None, f"Sandbox.Timedout: Task timed out after {seconds:.2f} seconds")
        if answer is None:
            self._answers.put(None)  # the process is gone for good
            return Answer(None, f"Runtime.ExitError: the process ended with {self._status}")
        return answer

    def _wait(self) -> None:
        self._status = self._process.wait()
        self._ended.set()
        self._answers.put(None)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore connection errors of a process that was killed."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def _runtime_api(
    work: queue.SimpleQueue[_Invocation | None], answers: queue.SimpleQueue[Answer | None]
) -> type[BaseHTTPRequestHandler]:
    class RuntimeApi(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def do_GET(self) -> None:
            assert self.path == f"{_PATH}/invocation/next", self.path
            invocation = work.get()
            if invocation is None:
                self.close_connection = True
                return
            deadline = time.time() + invocation.timeout_seconds
            headers = {
                "Lambda-Runtime-Aws-Request-Id": invocation.id,
                "Lambda-Runtime-Deadline-Ms": str(int(deadline * 1000)),
                "Lambda-Runtime-Invoked-Function-Arn": invocation.arn,
                "Content-Type": "application/json",
                **({"Lambda-Runtime-Trace-Id": invocation.trace} if invocation.trace else {}),
            }
            invocation.taken.set()
            self._send(200, invocation.event, headers)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")
            self._send(202, b'{"status":"OK"}', {})
            if self.path.endswith("/response"):
                answers.put(Answer(body))
            else:
                answers.put(Answer(None, f"{body.get('errorType')}: {body.get('errorMessage')}"))

        def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the base class's name
            """Log nothing."""

    return RuntimeApi
