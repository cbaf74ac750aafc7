"""Compile the requirements (requirements/*.in, pyproject.toml) into exact, hashed pins: `make pins`.

The sets agree with each other, because each is compiled under the pins of earlier ones: what the tests run (run.txt) is
what the layers and the forwarder's image contain. Pins that still satisfy are kept; UPGRADE=--upgrade moves them.
"""

from __future__ import annotations

import subprocess
import sys

from requirements.install import ROOT, UV, install, uv_environment

# set: (its sources and extras, the sets whose pins constrain it)
SETS = {
    "bootstrap": (["requirements/bootstrap.in"], []),
    "run": (["pyproject.toml", "--extra=local", "--extra=ui"], []),
    "dev": (["requirements/dev.in"], ["run", "bootstrap"]),
    "infra": (["requirements/infra.in"], ["dev", "bootstrap"]),
    "forwarder": (["requirements/forwarder.in"], ["run"]),
    "lambda": (["requirements/lambda.in"], ["run"]),
    "lambda-packing": (["requirements/lambda-packing.in"], ["run"]),
    "docs": (["requirements/docs.in"], ["run", "dev", "bootstrap"]),
    "browser": (["requirements/browser.in"], ["run", "dev"]),
}


def compile_set(name: str, options: list[str]) -> None:
    """Write requirements/NAME.txt for every platform and every Python version that the project supports."""
    sources, binding = SETS[name]
    command = [
        str(UV),
        "pip",
        "compile",
        "--quiet",
        "--universal",
        "--generate-hashes",
        "--python-version=3.11",
    ]
    command += [
        "--no-header",
        "--no-emit-index-url",
        f"--output-file=requirements/{name}.txt",
        *options,
        *sources,
    ]
    command += [f"--constraints=requirements/{other}.txt" for other in binding]
    subprocess.run(command, cwd=ROOT, env=uv_environment(), check=True)


if __name__ == "__main__":
    install([])
    for each in SETS:
        print(f"requirements/{each}.txt")
        compile_set(each, sys.argv[1:])
