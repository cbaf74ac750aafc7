"""Synthesise the app: `python -m tests.e2e.deployed.synthesise CONTEXT FUNCTIONS LAYERS OUTPUT`.

CONTEXT (JSON) overrides the context of cdk.json, FUNCTIONS is a folder, and LAYERS (JSON) maps names to folders. For a
`canary`, the AWS account in the environment is asked which versions serve. This runs in its own process because Node
lives as long as the process that used it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from infra.application import application
from infra.functions.function import Code

ROOT = Path(__file__).resolve().parents[3]


def main(context: str, functions: str, layers: str, output: str) -> None:
    folders = {name: Path(folder) for name, folder in json.loads(layers).items()}
    stated = json.loads((ROOT / "cdk.json").read_text())["context"]
    code = Code(Path(functions), folders)
    application({**stated, **json.loads(context)}, code, Path(output)).synth()


if __name__ == "__main__":
    main(*sys.argv[1:])
