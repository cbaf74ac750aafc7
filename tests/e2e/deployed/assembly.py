"""What `cdk deploy` would upload for a region: templates and assets, created once and kept in build/e2e/.

Its layers are for this machine instead of Lambda's arm64. Everything else is what app.py creates.
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from layers.vendor.build import THIS_MACHINE, build, stamp_of
from tests.processes.synthesis import synthesise

ROOT = Path(__file__).resolve().parents[3]
BUILT = ROOT / "build" / "e2e"
FUNCTIONS = ROOT / "functions"
_KEPT = 12  # assemblies of older sources, which a run may still use; 100 MB each


_taken: dict[str, Path] = {}
"""Assets by content hash, each with the path where this process first found it."""


@dataclass(frozen=True, slots=True)
class Release:
    """A release to deploy: the functions' folder, and the clusters for a canary (if empty, it serves all)."""

    functions: Path = FUNCTIONS
    canary: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Account:
    """The AWS account that the app asks which versions serve: its environment, and its answer by function."""

    environment: Mapping[str, str] = field(default_factory=dict)
    live: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Assembly:
    """A cloud assembly on disk, for some clusters in one region."""

    folder: Path
    clusters: tuple[str, ...]
    region: str

    def cluster_templates(self) -> Mapping[str, str]:
        """Return the JSON of each cluster's stack."""
        return {
            name: (self.folder / f"nodesmith-{self.region}-{name}.template.json").read_text()
            for name in self.clusters
        }

    def region_template(self) -> str:
        """Return the JSON of the stack that the region's clusters share."""
        return (self.folder / f"nodesmith-{self.region}.template.json").read_text()

    def asset(self, key: str) -> Path:
        """Return the folder that is uploaded as the object `key` of the bootstrap bucket.

        Releases with the same content share one folder, so one preloaded Python process serves all of them.
        """
        files: dict[str, Any] = {}
        for manifest in self.folder.glob("*.assets.json"):
            files |= json.loads(manifest.read_text())["files"]
        (path,) = {
            str(each["source"]["path"])
            for each in files.values()
            if key in {place["objectKey"] for place in each["destinations"].values()}
        }
        return _taken.setdefault(path, self.folder / path)


def synthesised(
    clusters: Sequence[str],
    region: str,
    options: Mapping[str, Any] | None = None,
    release: Release = Release(),
    account: Account = Account(),
) -> Assembly:
    """Synthesise a release for some clusters; `options` are the region's options in cdk.json.

    Takes 5 s because Node has to start, or no time while a kept assembly has the same sources and context.
    """
    context = {
        "regions": {region: dict(options or {})},
        "clusters": [
            {"name": name, "region": region, "vpcId": placeholder_vpc(number)}
            for number, name in enumerate(clusters)
        ],
        **({"canary": ",".join(release.canary)} if release.canary else {}),
    }
    live = account.live if release.canary else {}
    BUILT.mkdir(parents=True, exist_ok=True)
    with _alone(BUILT / "assemblies.lock"):
        layers = _layers()
        folder = BUILT / "assemblies" / _digest([context, live], release.functions, layers)
        if not folder.is_dir():
            _forget_old(folder.parent)
            draft = folder.with_suffix(".draft")
            shutil.rmtree(draft, ignore_errors=True)
            synthesise(context, release.functions, layers, draft, account.environment)
            draft.rename(folder)
        folder.touch()
    return Assembly(folder, tuple(clusters), region)


def placeholder_vpc(number: int) -> str:
    """Return a cluster's VPC ID in all assemblies, because the account's VPC gets a new ID each time it is created."""
    return f"vpc-{number:017x}"


@cache
def _layers() -> Mapping[str, Path]:
    """Build the layers, unless they are built, once per process."""
    return build(BUILT / "layers", THIS_MACHINE)


def _digest(said: Sequence[Any], functions: Path, layers: Mapping[str, Path]) -> str:
    """Return an assembly's name, a hash of everything it is made from; `said` is what is not in files."""
    sources = [
        *(ROOT / "infra").rglob("*.py"),
        ROOT / "cdk.json",
        ROOT / "requirements" / "infra.txt",
        ROOT / "layers/core/python/nodesmith/settings.py",
        ROOT / "layers/core/python/nodesmith/registration.py",
    ]
    sources += [stamp_of(layer) for layer in layers.values()]
    digests = [_digests(sources, ROOT), _digests(functions.glob("*/*.py"), functions)]
    return sha256(json.dumps([said, digests], sort_keys=True).encode()).hexdigest()[:16]


def _digests(sources: Iterable[Path], root: Path) -> Mapping[str, str]:
    return {str(path.relative_to(root)): sha256(path.read_bytes()).hexdigest() for path in sources}


def _forget_old(assemblies: Path) -> None:
    assemblies.mkdir(exist_ok=True)
    by_age = sorted(assemblies.iterdir(), key=lambda folder: folder.stat().st_mtime, reverse=True)
    for old in by_age[_KEPT:]:
        shutil.rmtree(old)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Make the tests' other processes wait."""
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
