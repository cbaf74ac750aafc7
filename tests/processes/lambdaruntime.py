"""A function in the runtime of Lambda: its folder, the core as a layer, and reduced API models."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

import botocore

from layers.vendor.models import OPERATIONS, cut_models
from tests.processes.runtimeapi import Answer, RuntimeProcess, executed

ROOT = Path(__file__).parents[2]
_PATIENCE_SECONDS = 60


class LambdaFunction:
    """One function in its own process, laid out as on Lambda: handler folder, core layer, reduced AWS API models.

    A context manager; `folder` is the target of the layout. The function's output is in `logs`.
    """

    def __init__(self, concern: str, folder: Path, environment: Mapping[str, str]) -> None:
        self._concern, self._folder, self._environment = concern, folder / concern, environment
        self._log = self._folder / "log"
        self._process: RuntimeProcess

    def __enter__(self) -> LambdaFunction:
        task, layer = self._folder / "task", self._folder / "opt" / "python"
        shutil.copytree(ROOT / "functions" / self._concern, task)
        layer.parent.mkdir()
        layer.symlink_to(ROOT / "layers" / "core" / "python")
        own = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        environment = {**own, **self._lambdas_own(task, layer), **self._environment}
        command = [sys.executable, "-X", "importtime", "-m", "awslambdaric", "handler.handler"]
        self._process = RuntimeProcess(
            executed(command, task, environment, self._log),
            f"arn:aws:lambda:us-east-1:123456789012:function:nodesmith-test-{self._concern}",
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.close()

    @property
    def logs(self) -> str:
        return self._log.read_text()

    def invoke(self, event: Mapping[str, Any]) -> Answer:
        """Invoke once and wait for the answer; a function that cannot start answers with its error."""
        return self._process.invoke(event, _PATIENCE_SECONDS)

    def invoke_with(self, *messages: object) -> Answer:
        """Invoke with an event of these messages."""
        return self.invoke({"messages": messages})

    def imported(self) -> frozenset[str]:
        """Return the modules that the process imported; call it after the process has ended."""
        lines = (line for line in self.logs.splitlines() if line.startswith("import time:"))
        return frozenset(line.rpartition("|")[2].strip() for line in lines)

    def said(self) -> str:
        """Return what the process logged; call it after the process has ended."""
        return "\n".join(line for line in self.logs.splitlines() if not line.startswith("import time:"))

    def _lambdas_own(self, task: Path, layer: Path) -> dict[str, str]:
        return {
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
    """Return a folder with the API models of the vendor layer. botocore looks there before its own."""
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
