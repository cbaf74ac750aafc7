"""A function as Lambda runs it: its asset as task folder, layers, variables, awslambdaric, one process or more."""

from __future__ import annotations

import importlib.util
import itertools
import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nodesmith.settings import ALIAS
from nodesmith_formats.localsystem.clock import LocalClock
from tests.e2e.deployed.assembly import BUILT, Assembly
from tests.e2e.deployed.invocations import aliases, concern_of
from tests.e2e.deployed.preloaded import preloaded_from
from tests.e2e.systems import hurry
from tests.infra.templates import Template
from tests.processes.runtimeapi import RuntimeProcess

RUNTIME = ("awslambdaric", "runtime_client", "simplejson", "snapshot_restore_py")
"""What Lambda's own image has beside Python: the runtime and its dependencies."""

PROPERTIES = frozenset(
    "Code Environment FunctionName Handler Layers MemorySize RecursiveLoop Role Runtime Timeout".split()
)
NOT_IMITATED = {
    "Architectures": "it runs on this machine",
    "LoggingConfig": "it writes to a file",
    "Tags": "not used here",
    "TracingConfig": "not used here",
    "VpcConfig": "everything is on this machine",
}


class InvocationFailed(Exception):
    """A function raised, timed out, or its process ended."""


@dataclass(frozen=True, slots=True)
class FunctionCode:
    """The files of a function's version, and its configuration in Lambda. `arn` is that of the usual alias."""

    concern: str
    arn: str
    task: Path
    path: tuple[Path, ...]
    handler: str
    timeout_seconds: float
    variables: Mapping[str, str]


def read_function(
    template: Template, id_: str, assembly: Assembly, region: str, version: str = "$LATEST"
) -> FunctionCode:
    """Read a version of a function from the template. Raises ValueError for a property that would be ignored."""
    properties = template.resources[id_]["Properties"]
    unknown = properties.keys() - PROPERTIES - NOT_IMITATED.keys()
    if unknown:
        raise ValueError(
            f"function {properties['FunctionName']}: unknown properties {', '.join(sorted(unknown))}"
        )
    layers = [
        assembly.asset(template.resources[layer]["Properties"]["Content"]["S3Key"]) / "python"
        for layer in properties["Layers"]
    ]
    task = assembly.asset(properties["Code"]["S3Key"])
    name = properties["FunctionName"]
    own = {**_lambdas_own(properties, task, region), "AWS_LAMBDA_FUNCTION_VERSION": version}
    return FunctionCode(
        concern=concern_of(name),
        arn=next(
            each.arn for each in aliases(template, region) if (each.function, each.name) == (name, ALIAS)
        ),
        task=task,
        path=tuple(reversed(layers)),  # in /opt a later layer's file covers an earlier one's
        handler=properties["Handler"],
        timeout_seconds=properties["Timeout"],
        variables={**own, **properties["Environment"]["Variables"]},
    )


def _lambdas_own(properties: Mapping[str, Any], task: Path, region: str) -> dict[str, str]:
    """Return the variables that Lambda itself sets, except for version, credentials and the address of its API."""
    return {
        "AWS_DEFAULT_REGION": region,
        "AWS_EXECUTION_ENV": f"AWS_Lambda_{properties['Runtime']}",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(properties["MemorySize"]),
        "AWS_LAMBDA_FUNCTION_NAME": properties["FunctionName"],
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{properties['FunctionName']}",
        "AWS_REGION": region,
        "LAMBDA_TASK_ROOT": str(task),
        "LANG": "en_US.UTF-8",
        "PATH": os.environ["PATH"],
        "TZ": ":UTC",
        "_HANDLER": properties["Handler"],
    }


class DeployedFunction:
    """The execution environments of a function's version. A call is one invocation, in an idle or a new environment.

    `environment` has the variables that lead to AWS; `folder` holds logs. An environment starts as a preloaded process
    and does the rest of its start itself. A call may state the `arn` by which the function is invoked. Raises
    InvocationFailed.
    """

    def __init__(
        self,
        code: FunctionCode,
        environment: Mapping[str, str],
        folder: Path,
        clock: LocalClock,
    ) -> None:
        self._code, self._folder, self._clock = code, folder.resolve(), clock
        folder.mkdir(parents=True, exist_ok=True)
        path = os.pathsep.join(map(str, [*code.path, _runtime()]))
        self._environment = {
            **code.variables,
            **environment,
            **hurry.environment(clock),
            "PYTHONPATH": path,
        }
        self._idle: list[RuntimeProcess] = []
        self._all: list[RuntimeProcess] = []
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    @property
    def concern(self) -> str:
        return self._code.concern

    def __call__(self, event: Mapping[str, Any], trace: str = "", arn: str = "") -> Any:
        process = self._take()
        seconds = self._code.timeout_seconds  # real time, because no clock accelerates work
        answer = process.invoke(event, seconds, trace, arn)
        with self._lock:
            self._idle.append(process)
        if answer.error:
            raise InvocationFailed(answer.error)
        return answer.payload

    def kill(self) -> bool:
        """Kill the busy processes; return False if none is busy."""
        at_work = self.at_work()
        for process in at_work:
            process.kill()
        return bool(at_work)

    def close(self) -> None:
        """End all processes."""
        if self._all:
            with ThreadPoolExecutor(len(self._all)) as pool:
                list(pool.map(RuntimeProcess.close, self._all))

    def at_work(self) -> list[RuntimeProcess]:
        """Return the busy processes."""
        with self._lock:
            return [each for each in self._all if each not in self._idle and each.is_alive]

    def _take(self) -> RuntimeProcess:
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                if process.is_alive:
                    return process
                process.close()
                self._all.remove(process)
            process = self._start()
            self._all.append(process)
        return process

    def _start(self) -> RuntimeProcess:
        program = [*hurry.command(self._clock, "awslambdaric"), self._code.handler]
        log = self._folder / f"{next(self._numbers):03}.log"
        python = preloaded_from(self._environment["PYTHONPATH"])
        start = python.started(program, self._code.task, self._environment, log)
        return RuntimeProcess(start, self._code.arn)


@cache
def _runtime() -> Path:
    """Return a folder with only Lambda's runtime from this virtual environment; other processes may be using it."""
    folder = BUILT / "runtime"
    folder.mkdir(exist_ok=True)
    for name in RUNTIME:
        spec = importlib.util.find_spec(name)
        assert spec is not None, f"{name} is not installed"
        assert spec.origin is not None
        found = Path(spec.origin)
        found = found.parent if found.name == "__init__.py" else found
        draft = folder / f"{found.name}.{os.getpid()}"
        draft.symlink_to(found)
        draft.replace(folder / found.name)
    return folder
