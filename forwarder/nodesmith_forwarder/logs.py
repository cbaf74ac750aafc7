"""Logs as one JSON object per line."""

from __future__ import annotations

import json
import logging
import sys
import threading
from datetime import UTC, datetime


class JsonLines(logging.Formatter):
    """Formats level, time, logger and message, and a traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "level": record.levelname,
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def log_json(level: str) -> None:
    """Log to standard output. Libraries log errors only: their other messages may contain requests."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for library in ("boto3", "botocore", "urllib3"):
        logging.getLogger(library).setLevel(logging.ERROR)
    threading.excepthook = _log_death


def _log_death(death: threading.ExceptHookArgs) -> None:
    error = death.exc_value or death.exc_type()
    logging.getLogger(__name__).critical("a thread has died", exc_info=error)
