"""Write what Krew needs of a release: the archive with the plugin, and its manifest for an index.

python .ci/krew.py 0.1.0 https://example.com/nodesmith dist
"""

from __future__ import annotations

import gzip
import hashlib
import io
import sys
import tarfile
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
PLUGIN, ARCHIVE, MANIFEST = "kubectl-nodesmith", "kubectl-nodesmith.tar.gz", "nodesmith.yaml"
EXECUTABLE, READABLE = 0o755, 0o644
DESCRIPTION = (
    "Shows what the nodes of an EKS cluster cost and what they would cost, which nodes pending pods would get, and why"
    " a pod waits or a node stays. Nothing has to be installed in the cluster for that. The plugin runs the nodesmith"
    " command, which it fetches with pipx or uv unless it is installed."
)


def archive(version: str) -> bytes:
    """Return the archive with the script and the licence. The same content gives the same bytes."""
    script = (ROOT / "cli" / "krew" / PLUGIN).read_text().replace("@VERSION@", version).encode()
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as tar,
    ):
        for name, content, mode in (
            (PLUGIN, script, EXECUTABLE),
            ("LICENSE", (ROOT / "LICENSE").read_bytes(), READABLE),
        ):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def manifest(version: str, repository: str, digest: str) -> dict[str, Any]:
    """Return the manifest. `repository` is the URL of the repository whose releases have the archive."""
    systems = {"key": "os", "operator": "In", "values": ["linux", "darwin"]}
    platform = {
        "selector": {"matchExpressions": [systems]},
        "uri": f"{repository}/releases/download/v{version}/{ARCHIVE}",
        "sha256": digest,
        "bin": PLUGIN,
    }
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "nodesmith"},
        "spec": {
            "version": f"v{version}",
            "homepage": repository,
            "shortDescription": "Show what EKS nodes cost and why they exist",
            "description": DESCRIPTION,
            "platforms": [platform],
        },
    }


def main(version: str, repository: str, folder: str) -> None:
    """Write both files into a folder."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    packed = archive(version)
    digest = hashlib.sha256(packed).hexdigest()
    (Path(folder) / ARCHIVE).write_bytes(packed)
    written = yaml.safe_dump(manifest(version, repository, digest), sort_keys=False, width=100)
    (Path(folder) / MANIFEST).write_text(written)


if __name__ == "__main__":
    main(*sys.argv[1:])
