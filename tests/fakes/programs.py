"""Stand-ins for etcd, kube-apiserver and others: they listen on their port and report that they are ready."""

from __future__ import annotations

import os
import signal
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit


def programs(folder: Path, journal: Path, **scripts: str) -> Path:
    """Make a folder with all of them; they append to `journal` when they start and end.

    `scripts` are shell commands that run before a program: `kwok="exit 3"` (with _ for - in the name).
    """
    from nodesmith_local.controlplane import PROGRAMS  # the programs themselves start faster without it

    folder.mkdir()
    search = os.pathsep.join(sys.path)
    for name in PROGRAMS:
        first = scripts.get(name.replace("-", "_"), ":")
        run = f'PYTHONPATH="{search}" exec "{sys.executable}" -m tests.fakes.programs {name} "{journal}" "$@"'
        (folder / name).write_text(f"#!/bin/sh\n{first}\n{run}\n")
        (folder / name).chmod(0o755)
    return folder


def address(options: dict[str, str]) -> int:
    """Return the port on which a program must listen."""
    if "listen-client-urls" in options:
        return int(urlsplit(options["listen-client-urls"]).port or 0)
    return int(options.get("secure-port") or options["server-address"].rpartition(":")[2])


class Ready(BaseHTTPRequestHandler):
    """Answers every request with 200."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the base class's name
        """Log nothing."""


def main(name: str, journal: Path, arguments: list[str]) -> None:
    """Listen until terminated."""

    def write(what: str) -> None:
        with journal.open("a") as file:
            file.write(f"{what} {name}\n")

    def end(number: int, frame: object) -> None:
        del number, frame
        write("end")
        os._exit(0)

    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # until the start is recorded
    signal.signal(signal.SIGTERM, end)
    options = dict(each.removeprefix("--").partition("=")[::2] for each in arguments)
    server = ThreadingHTTPServer(("127.0.0.1", address(options)), Ready)
    if "tls-cert-file" in options:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options["tls-cert-file"], options["tls-private-key-file"])
        server.socket = context.wrap_socket(server.socket, server_side=True)
    write("start")
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
