"""What gets deployed, from the `clusters` of cdk.json: `make synth`, or the cdk command (docs/operations.md)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path.append(str(ROOT / "layers" / "core" / "python"))

from infra.application import application  # noqa: E402 - nodesmith has to be found first
from infra.functions import Code  # noqa: E402
from layers.vendor.build import build  # noqa: E402

if __name__ == "__main__":
    os.environ.setdefault("CDK_OUTDIR", str(ROOT / "cdk.out"))  # else it would be a temporary folder
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    try:
        app = application(context, Code(ROOT / "functions", build()))
    except ValueError as error:
        sys.exit(f"cdk.json: {error}")
    app.synth()
