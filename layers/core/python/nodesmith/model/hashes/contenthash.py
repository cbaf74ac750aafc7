"""Content hashes, which show whether two readings of an object have the same content.

Readiness hashes what it reads from the API server and keeps the hash in the ledger. A decision compares it with the
hash of the object in its snapshot. The hash is SHA-256 over everything that decisions read from the object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from nodesmith.model.manifests import Manifest

OPTIONS_DOMAIN = "nodesmith.dev/"
"""The prefix of the annotations that decisions read."""


def content_hash(manifest: Manifest) -> str:
    """Return the hash, 64 hex digits, of a NodePool or EC2NodeClass that was read without fatal problems.

    It covers the spec with its defaults, nodesmith's annotations, the uid, the generation and whether the object is
    being deleted. Labels and other annotations affect no decision, so they are left out.
    """
    annotations: Mapping[str, str] = manifest.metadata.get("annotations") or {}
    options = {key: value for key, value in annotations.items() if key.startswith(OPTIONS_DOMAIN)}
    return _digest({**manifest.identity, "annotations": options, "spec": manifest.spec})


def marked_content_hash(manifest: Manifest) -> str:
    """Return the hash of a NodeClaim. It includes labels and annotations, since its Node gets them as well."""
    marks = {part: manifest.metadata.get(part) or {} for part in ("labels", "annotations")}
    return _digest({**manifest.identity, **marks, "spec": manifest.spec})


def _digest(content: Mapping[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
