"""Holds nodesmith's hashes against Karpenter's own, over random objects."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

from nodesmith.model.hashes import NODECLASS_HASH_VERSION, NODEPOOL_HASH_VERSION
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.nodeclasses.nodeclasses import parse_nodeclass
from tests.karpenterhashes import KEPT, Hashed
from tests.karpenterhashes.drawing import Manifest, ca_bundle, nodeclass, nodepool

HERE, BUILT = Path(__file__).parent, Path("build/karpenterhashes/hashes").absolute()
KEPT_OF_A_KIND = 200


def drawn(seed: int, of_a_kind: int) -> list[tuple[Manifest, str]]:
    """Draw NodePools and as many EC2NodeClasses, each with the CA bundle of its cluster."""
    random = Random(seed)  # noqa: S311 the same objects for the same seed
    pools = [(nodepool(random, f"pool-{number}"), "") for number in range(of_a_kind)]
    return pools + [(nodeclass(random, f"class-{number}"), ca_bundle(random)) for number in range(of_a_kind)]


def hashed_by_karpenter(objects: Sequence[tuple[Manifest, str]]) -> list[Hashed]:
    """Hash with Karpenter's code, which is built before: some minutes the first time, seconds later."""
    subprocess.run(["go", "build", "-o", str(BUILT), "."], cwd=HERE, check=True)  # noqa: S607 from the PATH
    lines = "".join(json.dumps({"manifest": m, "caBundle": ca or None}) + "\n" for m, ca in objects)
    done = subprocess.run([str(BUILT)], input=lines, capture_output=True, text=True, check=True)
    answers = map(json.loads, done.stdout.splitlines())
    return [
        Hashed(m, ca, each["hash"], each["version"]) for (m, ca), each in zip(objects, answers, strict=True)
    ]


def hashed_by_nodesmith(manifest: Manifest, ca_bundle: str) -> tuple[str, str]:
    """Return hash and version; what is wrong with the manifest instead of the hash where it is refused."""
    if manifest["kind"] == "NodePool":
        pool = parse_nodepool(manifest)
        return (pool.value.hash if pool.value else str(pool.problems)), NODEPOOL_HASH_VERSION
    read = parse_nodeclass(manifest)
    return (read.value.hash_in(ca_bundle) if read.value else str(read.problems)), NODECLASS_HASH_VERSION


def main() -> int:
    """Compare fresh objects, or draw those anew that the unit tests read; 1 where any hash differs."""
    options = argparse.ArgumentParser(prog="python -m tests.karpenterhashes", description=__doc__)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--objects", type=int, default=5000, help="of each kind")
    options.add_argument(
        "--write", action="store_true", help=f"make {KEPT.name} anew: {KEPT_OF_A_KIND} of each kind"
    )
    wanted = options.parse_args()
    found = hashed_by_karpenter(drawn(wanted.seed, KEPT_OF_A_KIND if wanted.write else wanted.objects))
    if wanted.write:
        keys = ("manifest", "caBundle", "hash", "version")
        lines = [json.dumps(dict(zip(keys, each, strict=True)), separators=(",", ":")) for each in found]
        KEPT.write_text("\n".join(lines) + "\n")
    wrong = [e for e in found if hashed_by_nodesmith(e.manifest, e.ca_bundle) != (e.hash, e.version)]
    for each in wrong:
        ours = hashed_by_nodesmith(each.manifest, each.ca_bundle)
        print(f"{ours} is not {each.hash, each.version}: {json.dumps(each.manifest)}")
    print(f"{len(found) - len(wrong):,} of {len(found):,} hashes are Karpenter's")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
