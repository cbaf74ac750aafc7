"""`python -m tests.e2e.synthesise CONTEXT LAYERS OUTPUT`: the app for `regions` and `clusters` as cdk.json has them.

CONTEXT is JSON, and so is LAYERS, which maps names to folders. In a process of its own, for Node stays as long as the
process that used it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from infra.functions import Code
from tests.infra.deployment import ROOT, synthesise


def main(context: str, layers: str, output: str) -> None:
    folders = {name: Path(folder) for name, folder in json.loads(layers).items()}
    synthesise(Code(ROOT / "functions", folders), json.loads(context), Path(output))


if __name__ == "__main__":
    main(*sys.argv[1:])
