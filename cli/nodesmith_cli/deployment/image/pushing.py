"""Building and pushing the forwarder's image: base, dependencies and code for each platform, under one index.

Parts that the registry already has are not sent again, so an interrupted push can be continued.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

from nodesmith import __version__
from nodesmith.errors import Rejected
from nodesmith_cli.deployment.image import documents
from nodesmith_cli.deployment.image.base import Base, read_base
from nodesmith_cli.deployment.image.credentials import Credentials, credentials_for
from nodesmith_cli.deployment.image.dockerfile import Recipe, read_recipe
from nodesmith_cli.deployment.image.documents import Descriptor, Encoded
from nodesmith_cli.deployment.image.ecr import ecr_of, ensure_repository
from nodesmith_cli.deployment.image.layers import Layer, package_entries, write_layer
from nodesmith_cli.deployment.image.outcome import PushedImage, PushedPart
from nodesmith_cli.deployment.image.references import Reference, parse_reference, parse_target
from nodesmith_cli.deployment.image.registry import Repository
from nodesmith_cli.deployment.image.sending import OnStep, Part, Sender, say_nothing
from nodesmith_cli.deployment.image.wheels import MACHINES, fetch_wheels, wheel_entries
from nodesmith_formats.shipped import shipped

PLATFORMS = tuple(f"linux/{architecture}" for architecture in MACHINES)
_PACKAGES = ("nodesmith", "nodesmith_forwarder")
_BASE_NAME, _BASE_DIGEST = (f"org.opencontainers.image.base.{suffix}" for suffix in ("name", "digest"))


@dataclass(frozen=True, slots=True)
class PushOptions:
    """How to push. `base` replaces the pinned base image. `wheels` is a folder to take wheels from, not an index.

    `is_plain` means http for the target's registry, and for a base's registry that is the same one or local.
    `requirements` replace the pinned dependencies.
    """

    base: str = ""
    platforms: Sequence[str] = PLATFORMS
    credentials: Credentials | None = None
    is_plain: bool = False
    dry_run: bool = False
    wheels: Path | None = None
    requirements: Path | None = None


@dataclass(frozen=True, slots=True)
class _Image:
    """The image of one platform, built but not yet sent."""

    base: Base
    config: Encoded
    manifest: Encoded
    layers: Sequence[Layer]


def push_image(
    reference: str, options: PushOptions = PushOptions(), on_step: OnStep = say_nothing
) -> PushedImage:
    """Build the forwarder's image, push it to `reference`, and return the result. `on_step` is called for each step.

    Raises Rejected for permanent errors (a reference, a permission, a digest), and Transient for others.
    """
    target = parse_target(reference, __version__)
    platforms = _platforms(options.platforms)
    recipe = read_recipe(shipped("_image/Dockerfile", "forwarder/Dockerfile"))
    with ExitStack() as stack:
        opened = _Repositories(stack, target, options)
        repository = opened.target()
        repository.digest_of(target.tag)  # fail early, before the build, if access is denied
        bases = {platform: _base(platform, recipe, options.base, opened, on_step) for platform in platforms}
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="nodesmith-image-")))
        images = _build(bases, recipe, options, folder, on_step)
        sender = Sender(repository, folder, on_step, is_dry=options.dry_run)
        sent = [part for image in images.values() for part in _send(image, opened, sender)]
        index = _index(images)
        sent.append(sender.document(index, target.tag, "index"))
    digests = {platform: image.manifest.descriptor.digest for platform, image in images.items()}
    named = {platform: str(base.reference) for platform, base in bases.items()}
    parts = tuple({part.digest: part for part in sent}.values())
    return PushedImage(target, index.descriptor.digest, digests, named, parts, options.dry_run)


class _Repositories:
    """The repositories of a push, each opened once."""

    def __init__(self, stack: ExitStack, target: Reference, options: PushOptions) -> None:
        self._stack, self._target, self._options = stack, target, options
        self._opened: dict[str, Repository] = {}

    def target(self) -> Repository:
        """Open the target's repository. A missing one is created in ECR."""
        repository = self._open(self._target, self._options.is_plain)
        if (ecr := ecr_of(self._target)) is not None and not self._options.dry_run:
            ensure_repository(ecr, self._target.repository)
        return repository

    def of(self, reference: Reference) -> Repository:
        """Open a base's repository."""
        is_near = reference.registry == self._target.registry or reference.is_on_this_machine
        return self._open(reference, self._options.is_plain and is_near)

    def _open(self, reference: Reference, is_plain: bool) -> Repository:
        if reference.name not in self._opened:
            is_targets = reference.registry == self._target.registry
            credentials = credentials_for(reference, self._options.credentials if is_targets else None)
            writes = reference.name == self._target.name and not self._options.dry_run
            repository = Repository(reference, credentials, is_plain=is_plain, writes=writes)
            self._opened[reference.name] = self._stack.enter_context(repository)
        return self._opened[reference.name]


def _platforms(wanted: Sequence[str]) -> list[str]:
    if unknown := [platform for platform in wanted if platform not in PLATFORMS]:
        raise Rejected(f"--platform {unknown[0]!r} is not supported; platforms: {', '.join(PLATFORMS)}")
    return sorted(set(wanted))


def _base(platform: str, recipe: Recipe, override: str, opened: _Repositories, on_step: OnStep) -> Base:
    """Read the base image: the pinned one, the pinned one from a mirror, or another one with a tag or digest."""
    pinned = recipe.bases.get(platform.split("/")[1])
    if pinned is None:
        raise Rejected(f"{platform}: no base image is pinned for it")
    named = parse_reference(override) if override else pinned
    if not (named.digest or named.tag):
        named = replace(named, digest=pinned.digest)
    on_step(f"reading {named} for {platform}", 0)
    return read_base(opened.of(named), named.digest or named.tag, platform)


def _build(
    bases: Mapping[str, Base], recipe: Recipe, options: PushOptions, folder: Path, on_step: OnStep
) -> dict[str, _Image]:
    packages = [Path(str(files(name))) for name in _PACKAGES]
    entries = {name: entry for package in packages for name, entry in package_entries(package).items()}
    code = write_layer(folder / "code.tar.gz", entries, recipe.folder, " and ".join(_PACKAGES))
    for platform, base in bases.items():
        on_step(f"fetching wheels for {platform}, Python {base.python}", 0)

    def made(platform: str) -> _Image:
        base = bases[platform]
        return _image(base, recipe, (_dependencies(platform, base.python, recipe, options, folder), code))

    with ThreadPoolExecutor() as pool:  # pip waits for the index, and compression releases the GIL
        return dict(zip(bases, pool.map(made, bases), strict=True))


def _dependencies(platform: str, python: str, recipe: Recipe, options: PushOptions, folder: Path) -> Layer:
    architecture = platform.split("/")[1]
    requirements = options.requirements or shipped("_image/forwarder.txt", "requirements/forwarder.txt")
    wheels = fetch_wheels(requirements, python, architecture, folder / architecture, options.wheels)
    with wheel_entries(wheels) as entries:
        return write_layer(folder / f"{architecture}.tar.gz", entries, recipe.folder, "dependencies")


def _image(base: Base, recipe: Recipe, layers: Sequence[Layer]) -> _Image:
    config = documents.configuration(base.config, recipe, layers, __version__)
    own = [Descriptor(documents.LAYER, layer.digest, layer.size) for layer in layers]
    base_annotations = {_BASE_NAME: base.reference.name, _BASE_DIGEST: base.reference.digest}
    return _Image(
        base, config, documents.manifest(config.descriptor, [*base.layers, *own], base_annotations), layers
    )


def _index(images: Mapping[str, _Image]) -> Encoded:
    manifests = {platform: image.manifest.descriptor for platform, image in images.items()}
    return documents.index(manifests, {"org.opencontainers.image.version": __version__})


def _send(image: _Image, opened: _Repositories, sender: Sender) -> list[PushedPart]:
    """Send all blobs of a manifest, then the manifest."""
    source = opened.of(image.base.reference)
    about = f"base: {image.base.reference.repository}"
    parts = [Part(layer, about, source) for layer in image.base.layers]
    for layer in image.layers:
        descriptor = Descriptor(documents.LAYER, layer.digest, layer.size)
        parts.append(Part(descriptor, layer.what, layer.path))
    sent = [sender.blob(part) for part in parts]
    sent.append(sender.content(image.config, "configuration"))
    sent.append(sender.document(image.manifest, image.manifest.descriptor.digest, "manifest"))
    return sent
