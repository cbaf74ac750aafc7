"""`python -m tests.e2e.synthesise CLUSTER LAYERS OUTPUT`: the app for one cluster (its entry of cdk.json, as JSON).

`LAYERS` maps names to folders, as JSON. In a process of its own, for Node stays as long as the process that used it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from infra.functions import Code
from tests.infra.deployment import ROOT, synthesise


def main(cluster: str, layers: str, output: str) -> None:
    folders = {name: Path(folder) for name, folder in json.loads(layers).items()}
    synthesise(Code(ROOT / "functions", folders), [json.loads(cluster)], Path(output))


if __name__ == "__main__":
    main(*sys.argv[1:])
