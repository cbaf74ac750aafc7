"""What gets deployed, from the `clusters` of cdk.json: `make synth`, or the cdk command (docs/operations.md)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from infra.application import application
from infra.functions import Code
from layers.vendor.build import build

ROOT = Path(__file__).resolve().parent

if __name__ == "__main__":
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    output = Path(os.environ.get("CDK_OUTDIR", ROOT / "cdk.out"))  # set by the cdk command
    try:
        app = application(context, Code(ROOT / "functions", build()), output)
    except ValueError as error:
        sys.exit(f"cdk.json: {error}")
    app.synth()
