"""The fields of EC2NodeClass v1, read from the CRD in the repository."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

_CRD = Path(__file__).parents[1] / "forwarder" / "crds" / "karpenter.k8s.aws_ec2nodeclasses.yaml"
Schema = Mapping[str, Any]


@lru_cache
def schemas() -> dict[str, Schema]:
    """Return the schema of each field of `spec` that holds no further fields, by path: `tags`, `a[].b`."""
    crd = yaml.safe_load(_CRD.read_text())
    (v1,) = (version for version in crd["spec"]["versions"] if version["name"] == "v1")
    return dict(_leaves(v1["schema"]["openAPIV3Schema"]["properties"]["spec"], ""))


def _leaves(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    if schema.get("type") == "array":
        yield from _leaves(schema["items"], f"{path}[]")
    elif "properties" in schema:
        for name, field in schema["properties"].items():
            yield from _leaves(field, f"{path}.{name}" if path else name)
    else:
        yield path, schema
