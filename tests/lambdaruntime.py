"""Lambda around a function, on this machine: its runtime, its folders, its Runtime API. Only the machine is ours."""

from __future__ import annotations

import atexit
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

import botocore

from layers.vendor.models import OPERATIONS, cut_models

ROOT = Path(__file__).parents[1]
_PATIENCE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Answer:
    """What an invocation came to: `error` is empty, or the exception's type and message."""

    payload: Any
    error: str = ""


class LambdaFunction:
    """One function in its own process, as Lambda lays it out: the handler's folder, the core as a layer, AWS's API
    models cut down as in the vendor layer.

    A context manager; `folder` is where it is laid out. What it prints is in `logs` once it has ended.
    """

    def __init__(self, concern: str, folder: Path, environment: Mapping[str, str]) -> None:
        self.logs = ""
        self._concern, self._folder, self._environment = concern, folder / concern, environment
        self._work: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _runtime_api(self._work, self._answers))
        self._server.daemon_threads = True
        self._process: subprocess.Popen[str]
        self._invoked = 0

    def __enter__(self) -> LambdaFunction:
        task, layer = self._folder / "task", self._folder / "opt" / "python"
        shutil.copytree(ROOT / "functions" / self._concern, task)
        layer.parent.mkdir()
        layer.symlink_to(ROOT / "layers" / "core" / "python")
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        own = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-X", "importtime", "-m", "awslambdaric", "handler.handler"],
            cwd=task,
            env={**own, **self._lambdas_own(task, layer), **self._environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(10)
        self._reader.join(10)
        self._server.shutdown()
        self._server.server_close()

    def invoke(self, event: Mapping[str, Any]) -> Answer:
        """Invoke once and wait for what comes of it; a function that cannot start answers with its error."""
        self._invoked += 1
        self._work.put((f"request-{self._invoked}", json.dumps(event).encode()))
        try:
            return self._answers.get(timeout=_PATIENCE_SECONDS)
        except queue.Empty:
            raise AssertionError(f"{self._concern} has not answered; it said:\n{self.logs[-3000:]}") from None

    def invoke_with(self, *bodies: str) -> Answer:
        """Invoke with a batch of SQS messages."""
        records = [{"messageId": str(n), "eventSource": "aws:sqs", "body": b} for n, b in enumerate(bodies)]
        return self.invoke({"Records": records})

    def imported(self) -> frozenset[str]:
        """Give the modules that the process has imported, once it has ended."""
        lines = (line for line in self.logs.splitlines() if line.startswith("import time:"))
        return frozenset(line.rpartition("|")[2].strip() for line in lines)

    def said(self) -> str:
        """Give what it logged, once it has ended."""
        return "\n".join(line for line in self.logs.splitlines() if not line.startswith("import time:"))

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.logs += line

    def _lambdas_own(self, task: Path, layer: Path) -> dict[str, str]:
        host, port = self._server.server_address[:2]
        return {
            "AWS_LAMBDA_RUNTIME_API": f"{host!s}:{port}",
            "AWS_LAMBDA_FUNCTION_NAME": f"nodesmith-test-{self._concern}",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1024",
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "LAMBDA_TASK_ROOT": str(task),
            "PYTHONPATH": str(layer),
            "AWS_DATA_PATH": str(_layer_models()),
            "PYTHONUNBUFFERED": "1",
        }


@cache
def _layer_models() -> Path:
    """Give a folder with the API models that the vendor layer carries. botocore looks there before its own."""
    data = Path(botocore.__file__).parent / "data"
    models = Path(tempfile.mkdtemp(prefix="models-"))
    atexit.register(shutil.rmtree, models, ignore_errors=True)
    for service in OPERATIONS:
        newest = max(path for path in (data / service).iterdir() if path.is_dir())
        target = models / service / newest.name
        target.mkdir(parents=True)
        shutil.copy(newest / "service-2.json.gz", target)
    cut_models(models)
    return models


def _runtime_api(
    work: queue.SimpleQueue[tuple[str, bytes]], answers: queue.SimpleQueue[Answer]
) -> type[BaseHTTPRequestHandler]:
    class RuntimeApi(BaseHTTPRequestHandler):
        """https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html, as far as one function needs it."""

        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def do_GET(self) -> None:
            request, event = work.get()
            headers = {
                "Lambda-Runtime-Aws-Request-Id": request,
                "Lambda-Runtime-Deadline-Ms": str(int((time.time() + 60) * 1000)),
                "Lambda-Runtime-Invoked-Function-Arn": "arn:aws:lambda:us-east-1:123456789012:function:test",
                "Content-Type": "application/json",
            }
            self._send(200, event, headers)

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
            """Say nothing."""

    return RuntimeApi
