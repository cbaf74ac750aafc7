"""Log output of a local system. It goes to a file, so that the terminal stays free for the user."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from nodesmith.errors import Rejected
from nodesmith.model.functions import Concern

_OURS = (
    "nodesmith",
    "nodesmith_cli",
    "nodesmith_formats",
    "nodesmith_local",
    "nodesmith_forwarder",
    "werkzeug",
    "urllib3",
    "botocore",
)


@contextmanager
def logs_to(path: Path) -> Iterator[TextIO]:
    """Send our loggers to a new file during the block. Raises Rejected if the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w", encoding="utf-8", buffering=1)
    except OSError as error:
        raise Rejected(f"{path}: {error.strerror}: name a writable folder with --keep") from None
    for (
        concern
    ) in Concern:  # powertools caches a logger for each name, bound to the standard output of its creation
        logging.root.manager.loggerDict.pop(concern, None)
    handler = logging.StreamHandler(file)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s"))
    before = {name: (logging.getLogger(name).propagate, logging.getLogger(name).level) for name in _OURS}
    for name in _OURS:
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.propagate = False
        logger.setLevel(logging.INFO if name.startswith("nodesmith") else logging.WARNING)
    try:
        with file:
            yield file
    finally:
        for name, (propagate, level) in before.items():
            logger = logging.getLogger(name)
            logger.removeHandler(handler)
            logger.propagate = propagate
            logger.setLevel(level)
