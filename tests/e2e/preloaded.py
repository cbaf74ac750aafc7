"""A Python that has imported what functions import and becomes one as often as it is asked to: `python preloaded.py`.

What its path does not have it goes without, as the function will. Nothing is composed and no setting is read: that is
each function's own. A line of its input, `{"program": [file or -m module, arguments…], "folder": …, "environment": {…},
"log": file}`, makes it fork a process that goes on as that program; the answer on its output is the process's number.
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
_MODULES = ("nodesmith.runtime", "aws_lambda_powertools.metrics", "simplejson")
"""Not awslambdaric: it reads its settings when it is loaded."""
_REGION = "us-east-1"
_SERVICES = ("dynamodb", "ec2", "eks", "iam", "lambda", "s3", "sqs", "ssm", "sts")


def main() -> None:
    """Import, then fork as asked until nobody can ask any more."""
    answers = os.dup(1)
    os.dup2(2, 1)
    _import_all()
    _read_descriptions()
    _read_catalog()
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy every page
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # whoever asked sees how they end
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
    """Keep what botocore reads of a service for its first client: megabytes of JSON, the same for all."""
    from botocore.loaders import JSONFileLoader
    from botocore.session import Session

    read = cache(JSONFileLoader().load_file)
    setattr(JSONFileLoader, "load_file", lambda _self, path: read(path))  # noqa: B010 another reader in its place
    session = Session()
    for service in _SERVICES:
        session.create_client(
            service, region_name=_REGION, aws_access_key_id="nobody", aws_secret_access_key="nothing"
        )


def _read_catalog() -> None:
    """Keep what the package ships of instance types and prices, which a function has until a catalogue is stored."""
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
    sys.path[0] = asked["folder"]  # as `python -m` has it
    sys.argv = asked["program"]
    if sys.argv[0] == "-m":
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
