"""The app synthesised in a process of its own: Node stays for as long as the process that used it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def synthesise(
    context: Mapping[str, Any],
    functions: Path,
    layers: Mapping[str, Path],
    output: Path,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Write the cloud assembly for a context of cdk.json into `output`.

    `functions` is the folder of the functions' code, `layers` the layers' folders by name. `environment` holds further
    variables, such as the AWS that the app asks for live versions.
    """
    folders = {name: str(folder) for name, folder in layers.items()}
    arguments = [json.dumps(context), str(functions), json.dumps(folders), str(output)]
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "layers" / "core" / "python")))
    subprocess.run(
        [sys.executable, "-m", "tests.e2e.deployed.synthesise", *arguments],
        cwd=ROOT,
        env={**os.environ, **(environment or {}), "PYTHONPATH": paths},
        stdout=sys.stderr,
        check=True,
    )
