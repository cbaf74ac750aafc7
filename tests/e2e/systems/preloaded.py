"""A Python process that preloads what functions import, and forks a function on request: `python preloaded.py`.

It skips modules that are not on its path, as the function will. It composes nothing and reads no settings, since those
are each function's own. Each line on its input, `{"program": [file or -m module, arguments…], "folder": …,
"environment": {…}, "log": file}`, forks a process that continues as that program. The process ID is written to its
output.
"""

from __future__ import annotations

import gc
import json
import os
import pkgutil
import runpy
import signal
import sys
import time
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

_PACKAGES = ("nodesmith.adapters", "nodesmith.controllers", "nodesmith.decisions")
_MODULES = ("nodesmith.composition.runtime", "aws_lambda_powertools.metrics", "simplejson")
"""awslambdaric is absent because it reads its settings on import."""
_REGION = "us-east-1"
_SERVICES = ("dynamodb", "ec2", "eks", "iam", "lambda", "s3", "sqs", "ssm", "sts")


def main() -> None:
    """Import everything, then fork on request until the input ends."""
    answers = os.dup(1)
    os.dup2(2, 1)
    _import_all()
    _read_descriptions()
    _read_catalog()
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy every page
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the requester watches how the processes end
    while line := sys.stdin.readline():
        asked = json.loads(line)
        child = os.fork()
        if not child:
            os.close(answers)
            _become(asked)
            return
        os.write(answers, b"%d\n" % child)


def _import_all() -> None:
    for module in _MODULES:
        _import(module)
    for package in _PACKAGES:
        for found in pkgutil.walk_packages(getattr(_import(package), "__path__", ()), f"{package}."):
            _import(found.name)


def _read_descriptions() -> None:
    """Cache what botocore reads for a service's first client: megabytes of JSON, the same for all processes."""
    from botocore.loaders import JSONFileLoader
    from botocore.session import Session

    read = cache(JSONFileLoader().load_file)
    setattr(JSONFileLoader, "load_file", lambda _self, path: read(path))  # noqa: B010 replaces the loader
    session = Session()
    for service in _SERVICES:
        session.create_client(
            service, region_name=_REGION, aws_access_key_id="nobody", aws_secret_access_key="nothing"
        )


def _read_catalog() -> None:
    """Load the shipped instance types and prices, which a function uses until a catalogue is stored."""
    catalogs = _import("nodesmith.adapters.catalog.catalogs")
    if catalogs is not None:
        catalogs.embedded_catalog(_REGION)


def _import(module: str) -> Any:
    with suppress(ImportError):
        return import_module(module)


def _become(asked: dict[str, Any]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    output = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for each in (1, 2):
        os.dup2(output, each)
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    os.chdir(asked["folder"])
    sys.path[0] = asked["folder"]  # as `python -m` sets it
    sys.argv = asked["program"]
    if sys.argv[0] == "-m":
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
