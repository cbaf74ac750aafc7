"""The CDK application as cdk.json configures it: `make synth`, or the cdk command (docs/operations.md)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from infra.application import application
from infra.context.context import environments_region
from infra.functions.function import Code
from infra.permissions.sizes import refuse_sizes
from layers.vendor.build import build

ROOT = Path(__file__).resolve().parent

if __name__ == "__main__":
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    output = Path(os.environ.get("CDK_OUTDIR", ROOT / "cdk.out"))  # set by the cdk command
    try:
        region = environments_region(os.environ)
        app = application(context, Code(ROOT / "functions", build()), output, region)
        refuse_sizes(app.synth())
    except ValueError as error:
        sys.exit(f"cdk.json: {error}")
