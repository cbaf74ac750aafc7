"""A function that is started once and goes on in as many processes as are asked for: `python frozen.py PROGRAM…`.

PROGRAM is what starts it: hurry.py or `-m awslambdaric`, and the handler. As under Lambda's SnapStart, the runtime
itself says when it has come to where it may be frozen: all is imported, nothing is asked for yet. There this process
stays. Each line of its input, `{"api": host:port, "log": file}`, makes it fork a process that goes on from there
under that Runtime API; the answer on its output is the process's number.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

_INITIALIZATION = "AWS_LAMBDA_INITIALIZATION_TYPE"
_API = "AWS_LAMBDA_RUNTIME_API"


def main() -> None:
    """Run the program up to the point where it may be frozen."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what is printed meanwhile is for the log
    sys.path[0] = str(Path.cwd())  # as `python -m` has it
    os.environ[_API] = ""
    usual = os.environ[_INITIALIZATION]
    os.environ[_INITIALIZATION] = "snap-start"
    missing: Any = None
    sys.modules["runtime_client"] = (
        missing  # reads the API's address when loaded, so each process loads its own
    )
    runtime: Any = import_module("awslambdaric.lambda_runtime_client")

    def restore_next(client: Any) -> None:
        os.environ[_INITIALIZATION] = usual
        os.environ[_API] = client.lambda_runtime_address = _fork_as_asked(answers)
        del sys.modules["runtime_client"]
        runtime.runtime_client = import_module("runtime_client")
        runtime.runtime_client.initialize_client(runtime._user_agent())

    runtime.LambdaRuntimeClient.restore_next = restore_next
    del sys.argv[0]
    if sys.argv[0] == "-m":
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")


def _fork_as_asked(answers: int) -> str:
    """Return in each process that is forked, never in this one: the address of its Runtime API."""
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy every page
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # whoever asked sees how they end
    while line := sys.stdin.readline():
        asked = json.loads(line)
        child = os.fork()
        if not child:
            os.close(answers)
            _write_to(asked["log"])
            return str(asked["api"])
        os.write(answers, b"%d\n" % child)
    os._exit(0)  # nobody will ask again


def _write_to(log: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for each in (1, 2):
        os.dup2(output, each)


if __name__ == "__main__":
    main()
