"""Build the Lambda layers: `python -m layers.vendor.build [again]`, or build() from app.py.

        build/layers/vendor/python    boto3 and powertools: for every function
        build/layers/packing/python   numpy and HiGHS: for functions that pack, which load them for large work only
        build/layers/core/python      nodesmith itself

uv fetches wheels for the Lambda platform from the pinned requirements, without Docker and on any platform. Files that
no function reads are left out. Modules are compiled if a Python of Lambda's version is available. Files in a layer
have no times, so only unchecked .pyc files are used there; without them, every cold start compiles.

Only the first build needs the network, and `make setup` or `make test` does it. A layer whose sources have not changed
is kept, so that `make synth` and `cdk deploy` work offline afterwards.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from layers.vendor.models import cut_models
from requirements.install import UV, run, uv_environment
from requirements.interpreter import find, provide

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "build" / "layers"
CORE = ROOT / "layers" / "core" / "python"


@dataclass(frozen=True, slots=True)
class Machine:
    """The target of wheels: a minor version of Python, and a platform in uv's notation."""

    python: str
    platform: str


# aws_lambda.Runtime.PYTHON_3_14, the newest in aws-cdk-lib 2.275 and therefore the one that cdk-nag's L1 rule requires.
LAMBDA = Machine("3.14", "aarch64-manylinux_2_28")
THIS_MACHINE = Machine(".".join(platform.python_version_tuple()[:2]), f"{platform.machine()}-manylinux_2_28")
LIMIT_MIB = 250  # a function and its layers together, unzipped
TIME = 315532800  # 1980-01-01, the earliest date of the zip format: the same files result in the same bytes

# The services whose API models botocore may load: all services that nodesmith and the forwarder call.
SERVICES = frozenset(
    "arc-zonal-shift cloudwatch dynamodb ec2 eks events iam lambda pricing s3 savingsplans scheduler sqs ssm sts "
    "sso sso-oidc".split()
)


def build(target: Path = BUILT, machine: Machine = LAMBDA) -> dict[str, Path]:
    """Build what has changed and return every layer's folder by name. Exit with a message if a step fails."""
    layers = {
        "vendor": wheels_layer(target / "vendor", pins("lambda"), machine),
        "packing": wheels_layer(target / "packing", pins("lambda-packing"), machine),
        "core": core_layer(target / "core", machine),
    }
    check_size(layers)
    return layers


def pins(name: str) -> dict[str, str]:
    """Read requirements/NAME.txt: return project → its pin with hashes, verbatim."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return {match[1]: match[0] for match in re.finditer(r"^([\w.-]+)==(?:.*\\\n)*.*\n", text, re.MULTILINE)}


def wheels_layer(layer: Path, pinned: dict[str, str], machine: Machine = LAMBDA) -> Path:
    """Fill a layer with the pinned wheels for a machine, without the files that are never read there."""
    requirements = "".join(pinned.values())
    sources = f"{machine}\n{requirements}"
    if is_current(layer, sources, machine):
        return layer
    draft = empty(layer)
    listed = draft / "requirements.txt"
    listed.write_text(requirements)
    command = [str(UV), "pip", "install", "--quiet", "--require-hashes", "--no-deps", "--only-binary=:all:"]
    command += [
        f"--python-platform={machine.platform}",
        f"--python-version={machine.python}",
        "--link-mode=copy",
    ]
    run([*command, f"--target={draft / 'python'}", f"--requirements={listed}"], uv_environment())
    listed.unlink()
    prune(draft / "python")
    cut_models(draft / "python" / "botocore" / "data")
    return finish(draft, layer, sources, machine)


def core_layer(layer: Path, machine: Machine = LAMBDA) -> Path:
    """Copy nodesmith itself into a layer."""
    files = sorted(path for path in CORE.rglob("*") if path.is_file() and path.suffix != ".pyc")
    digests = (f"{path.relative_to(CORE)} {sha256(path.read_bytes()).hexdigest()}\n" for path in files)
    sources = f"{machine}\n{''.join(digests)}"
    if is_current(layer, sources, machine):
        return layer
    draft = empty(layer)
    shutil.copytree(CORE, draft / "python", ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    return finish(draft, layer, sources, machine)


def prune(folder: Path) -> None:
    """Remove tests, scripts, install records and other services' API models."""
    services = {path for path in (folder / "botocore" / "data").glob("*") if path.is_dir()}
    unread = {path for path in services if path.name not in SERVICES}
    unread |= {path for path in folder.rglob("*") if path.name in {"test", "tests", "__pycache__"}}
    unread |= {
        folder / "bin",
        *(folder / "botocore" / "data").rglob("examples-1*"),
    }
    records = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json"}
    unread |= {path for path in folder.glob("*.dist-info/*") if path.name in records} | {folder / ".lock"}
    for path in unread:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


@cache
def compiler(machine: Machine) -> Path | None:
    """Return a Python of the machine's version, or None if this machine has none."""
    return Path(sys.executable) if machine.python == THIS_MACHINE.python else find(machine.python)


def compile_modules(draft: Path, python: Path) -> None:
    """Compile every module under the path that it has on Lambda."""
    options = ["-q", "--invalidation-mode=unchecked-hash", "-s", str(draft), "-p", "/opt"]
    run([str(python), "-m", "compileall", *options, str(draft / "python")], dict(os.environ))


def is_current(layer: Path, sources: str, machine: Machine) -> bool:
    """Return whether this script finished the layer from these sources, compiled if a compiler is available."""
    stamp = stamp_of(layer)
    good = {stamp_text(sources, compiled=True)}
    if compiler(machine) is None:
        good.add(stamp_text(sources, compiled=False))
    return layer.is_dir() and stamp.is_file() and stamp.read_text() in good


def stamp_of(layer: Path) -> Path:
    """Return the path of a layer's stamp, next to the layer so that it is not deployed."""
    return layer.with_suffix(".built")


def stamp_text(sources: str, *, compiled: bool) -> str:
    """Return a digest of the layer's sources, of these scripts, and of whether its modules are compiled."""
    scripts = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return sha256(scripts + f"{compiled}\n{sources}".encode()).hexdigest()


def empty(layer: Path) -> Path:
    """Make an empty folder to build in, so that an interrupted build leaves no layer that looks finished."""
    draft = layer.with_suffix(".draft")
    shutil.rmtree(draft, ignore_errors=True)
    (draft / "python").mkdir(parents=True)
    return draft


def finish(draft: Path, layer: Path, sources: str, machine: Machine) -> Path:
    """Compile, set the same time on every file, move the layer to its place and stamp it."""
    python = compiler(machine)
    if python:
        compile_modules(draft, python)
    for path in draft.rglob("*"):
        os.utime(path, (TIME, TIME))
    shutil.rmtree(layer, ignore_errors=True)
    draft.rename(layer)
    stamp_of(layer).write_text(stamp_text(sources, compiled=python is not None))
    compilation = (
        "compiled" if python else f"NOT compiled, cold starts are slower: no Python {machine.python} here"
    )
    print(f"layer {layer.name}: {size_mib(layer):.1f} MiB, {compilation}", file=sys.stderr)
    return layer


def size_mib(folder: Path) -> float:
    """Return the size of all files under a folder, in MiB."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20


def check_size(layers: dict[str, Path]) -> None:
    """Exit if the layers alone exceed Lambda's limit."""
    sizes = {name: size_mib(folder) for name, folder in layers.items()}
    if sum(sizes.values()) > LIMIT_MIB:
        sys.exit(f"layers of {sizes} MiB exceed Lambda's limit of {LIMIT_MIB} MiB: prune more, or pin less")


def shown_progress() -> AbstractContextManager[object]:
    """Return a context that shows progress on a terminal, if the command line is installed beside the build."""
    try:
        from nodesmith_cli.output.progress import progress
    except ImportError:  # `make synth` alone installs none of it
        return nullcontext()
    return progress("building the layers", key="layers")


if __name__ == "__main__":
    with shown_progress():
        provide(LAMBDA.python, again="again" in sys.argv)
        build()
