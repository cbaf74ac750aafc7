"""`nodesmith image push` against a registry that refuses whatever the OCI distribution specification allows."""

from __future__ import annotations

import io
import json
import shutil
import socket
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nodesmith import __version__
from nodesmith.errors import Rejected, Transient
from nodesmith_cli.deployment.image import pushing, sending
from nodesmith_cli.deployment.image.credentials import Credentials
from nodesmith_cli.deployment.image.documents import Descriptor
from nodesmith_cli.deployment.image.outcome import PushedImage
from nodesmith_cli.deployment.image.pushing import PushOptions, push_image
from nodesmith_cli.deployment.image.references import Reference
from nodesmith_cli.deployment.image.registry import Repository
from nodesmith_cli.deployment.image.wheels import fetch_wheels
from nodesmith_cli.main import app
from nodesmith_formats.shipped import shipped
from tests.registries.bases import DOCKER, OCI, digest_of, put_base
from tests.registries.strict import Answer, Registry, running
from tests.registries.wheels import make_wheel, write_pins

TARGET, BASE = "team/nodesmith-forwarder", "library/python"
FORGED = b'{"forged": true}'
FetchWheels = Callable[[Path, str, str, Path, Path], list[Path]]


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running() as registry:
        yield registry


@pytest.fixture(autouse=True)
def no_login_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setattr(sending, "_PAUSE_SECONDS", 0.0)


@pytest.fixture(scope="module")
def fetched(tmp_path_factory: pytest.TempPathFactory) -> FetchWheels:
    """Return a version of `fetch_wheels` that starts pip, which takes most of a push, once for the same question."""
    known: dict[object, Path] = {}

    def fetch(requirements: Path, python: str, architecture: str, target: Path, folder: Path) -> list[Path]:
        there = [(each.name, each.read_bytes()) for each in sorted(folder.iterdir())]
        asked = (requirements.read_bytes(), python, architecture, *there)
        if asked not in known:
            kept = tmp_path_factory.mktemp("wheels")
            fetch_wheels(requirements, python, architecture, kept, folder)
            known[asked] = kept
        shutil.copytree(known[asked], target)
        return sorted(target.iterdir())

    return fetch


@pytest.fixture(autouse=True)
def pip_is_started_seldom(fetched: FetchWheels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushing, "fetch_wheels", fetched)


@pytest.fixture
def options(tmp_path: Path) -> PushOptions:
    wheels = [make_wheel(tmp_path / "wheels", "plain", {"plain/__init__.py": b"any = 1\n"})]
    for machine in ("x86_64", "aarch64"):
        tag = f"cp313-cp313-manylinux_2_17_{machine}"
        files = {"fast.so": machine.encode(), "fast-2.0.data/scripts/fast": b"#!python\n"}
        wheels.append(make_wheel(tmp_path / "wheels", "fast", files, version="2.0", tag=tag))
    pins = write_pins(tmp_path / "pins.txt", wheels)
    return PushOptions(base="", is_plain=True, wheels=tmp_path / "wheels", requirements=pins)


@pytest.fixture
def single(options: PushOptions) -> PushOptions:
    """Return options for one platform, since pip takes most of a push's time for each."""
    return replace(options, platforms=["linux/amd64"])


def push(registry: Registry, options: PushOptions, target: str = TARGET) -> PushedImage:
    base = options.base or f"{registry.address}/{BASE}:3.13"
    return push_image(f"{registry.address}/{target}", replace(options, base=base))


def unpacked(registry: Registry, manifest: str) -> dict[str, bytes]:
    """Return the files of an image, with its layers merged in order."""
    stored, files = registry.repositories[TARGET], {}
    for layer in registry.document(TARGET, manifest)["layers"]:
        with tarfile.open(fileobj=io.BytesIO(stored.blobs[layer["digest"]])) as archive:
            for member in archive:
                if found := archive.extractfile(member):
                    files[member.name] = found.read()
    return files


def test_an_image_for_both_platforms_is_pushed_with_its_tag_and_digest(
    registry: Registry, options: PushOptions
) -> None:
    put_base(registry.remote(BASE), "3.13")
    pushed = push(registry, options)
    assert str(pushed.target) == f"{registry.address}/{TARGET}:{__version__}"
    assert pushed.reference_by_digest == f"{registry.address}/{TARGET}@{pushed.digest}"
    assert registry.repositories[TARGET].tags == {__version__: pushed.digest}
    index = registry.document(TARGET, pushed.digest)
    assert index["mediaType"] == f"{OCI}.index.v1+json"
    platforms = [(each["platform"]["os"], each["platform"]["architecture"]) for each in index["manifests"]]
    assert platforms == [("linux", "amd64"), ("linux", "arm64")]
    assert [each["digest"] for each in index["manifests"]] == list(pushed.manifests.values())


def test_each_platform_gets_its_base_its_wheels_and_the_installed_code(
    registry: Registry, options: PushOptions
) -> None:
    put_base(registry.remote(BASE), "3.13")
    pushed = push(registry, options)
    for platform, machine in (("linux/amd64", b"x86_64"), ("linux/arm64", b"aarch64")):
        files = unpacked(registry, pushed.manifests[platform])
        assert files["etc/architecture"].decode() == platform.split("/")[1]
        assert files["app/fast.so"] == machine
        assert files["app/plain/__init__.py"] == b"any = 1\n"
        assert b"__version__" in files["app/nodesmith/__init__.py"]
        assert "app/nodesmith_forwarder/__main__.py" in files
        assert not [name for name in files if {"scripts", "__pycache__"} & set(name.split("/"))]


def test_the_configuration_combines_the_base_and_the_dockerfile(
    registry: Registry, options: PushOptions
) -> None:
    put_base(registry.remote(BASE), "3.13")
    pushed = push(registry, options)
    manifest = registry.document(TARGET, pushed.manifests["linux/arm64"])
    config = registry.document(TARGET, manifest["config"]["digest"])
    assert (config["os"], config["architecture"], config["created"]) == (
        "linux",
        "arm64",
        "2026-08-05T01:12:14Z",
    )
    settings = config["config"]
    assert settings["Entrypoint"] == ["python", "-m", "nodesmith_forwarder"]
    assert (settings["User"], settings["ExposedPorts"]) == ("65532:65532", {"8081/tcp": {}})
    assert {"PYTHONPATH=/app", "PATH=/usr/local/bin:/usr/bin:/bin"} <= set(settings["Env"])
    assert settings["Labels"]["org.opencontainers.image.version"] == __version__
    assert "Cmd" not in settings
    assert len(config["rootfs"]["diff_ids"]) == len(manifest["layers"]) == len(config["history"]) == 3
    assert manifest["annotations"]["org.opencontainers.image.base.digest"] in pushed.bases["linux/arm64"]


def test_a_second_push_writes_nothing_and_returns_the_same_digest(
    registry: Registry, single: PushOptions
) -> None:
    put_base(registry.remote(BASE), "3.13")
    first = push(registry, single)
    registry.requests.clear()
    second = push(registry, single)
    assert second.digest == first.digest
    assert registry.written() == []
    assert {part.result for part in second.parts} == {"there"}


def test_layers_of_a_base_in_the_same_registry_are_not_copied(
    registry: Registry, options: PushOptions
) -> None:
    put_base(registry.remote(BASE), "3.13")
    pushed = push(registry, options)
    assert [part.result for part in pushed.parts if part.what.startswith("base")] == ["mounted"] * 2


def test_layers_are_copied_if_the_registry_does_not_mount(registry: Registry, options: PushOptions) -> None:
    registry.can_mount = False
    put_base(registry.remote(BASE), "3.13")
    pushed = push(registry, options)
    assert [part.result for part in pushed.parts if part.what.startswith("base")] == ["uploaded"] * 2


def test_a_base_with_docker_media_types_in_another_registry_is_copied(
    registry: Registry, single: PushOptions
) -> None:
    with running() as other:
        put_base(other.remote(BASE), "3.13", docker=True)
        pushed = push(registry, replace(single, base=f"{other.address}/{BASE}:3.13"))
    for digest in pushed.manifests.values():
        manifest = registry.document(TARGET, digest)
        assert DOCKER not in manifest["mediaType"]
        assert {layer["mediaType"] for layer in manifest["layers"]} == {f"{OCI}.layer.v1.tar+gzip"}


def test_a_base_with_a_digest_ignores_its_tag(registry: Registry, single: PushOptions) -> None:
    digest = put_base(registry.remote(BASE), "3.13")
    first = push(registry, single)
    put_base(registry.remote(BASE), "3.13", files={"etc/debian_version": b"14\n"})
    pinned = push(registry, replace(single, base=f"{registry.address}/{BASE}@{digest}"))
    assert pinned.digest == first.digest
    assert push(registry, single).digest != first.digest


def test_a_mirror_without_tag_and_digest_must_have_the_pinned_base(
    registry: Registry, options: PushOptions
) -> None:
    put_base(registry.remote(BASE), "latest")
    with pytest.raises(Rejected, match=r"manifest sha256:[0-9a-f]{64}: 404"):
        push(registry, replace(options, base=f"{registry.address}/{BASE}"))
    assert TARGET not in registry.repositories


def test_a_dry_run_has_the_digest_of_a_real_push_and_writes_nothing(
    registry: Registry, single: PushOptions
) -> None:
    put_base(registry.remote(BASE), "3.13")
    registry.requests.clear()
    dry = push(registry, replace(single, dry_run=True))
    assert registry.written() == []
    assert {part.result for part in dry.parts} == {"missing"}
    assert push(registry, single).digest == dry.digest


def test_a_single_platform_can_be_built(registry: Registry, options: PushOptions) -> None:
    put_base(registry.remote(BASE), "3.13", platforms=["linux/arm64"])
    pushed = push(registry, replace(options, platforms=["linux/arm64"]))
    assert len(registry.document(TARGET, pushed.digest)["manifests"]) == 1


def test_a_base_without_a_platform_is_refused_with_the_available_ones(
    registry: Registry, options: PushOptions
) -> None:
    put_base(registry.remote(BASE), "3.13", platforms=["linux/arm64"])
    with pytest.raises(Rejected, match="no image for linux/amd64; available: linux/arm64"):
        push(registry, options)


@pytest.mark.parametrize(
    ("python", "says"), [("3.9.1", "the forwarder needs 3.11"), ("", "not an official Python image")]
)
def test_a_base_without_a_suitable_python_is_refused(
    registry: Registry, options: PushOptions, python: str, says: str
) -> None:
    put_base(registry.remote(BASE), "3.13", python=python)
    with pytest.raises(Rejected, match=says):
        push(registry, options)


@pytest.mark.parametrize("what", ["manifests/sha256", "blobs/sha256"])
def test_a_base_that_does_not_match_its_digest_is_refused(
    registry: Registry, options: PushOptions, what: str
) -> None:
    registry.can_mount = False
    put_base(registry.remote(BASE), "3.13")

    def forged(method: str, path: str) -> Answer | None:
        is_asked = method == "GET" and f"{BASE}/{what}" in path
        return Answer(200, {"Content-Type": f"{OCI}.manifest.v1+json"}, FORGED) if is_asked else None

    registry.broken = forged
    with pytest.raises(Rejected, match=f"{BASE}.*(but received|wrong content).*{digest_of(FORGED)[7:]}"):
        push(registry, options)
    assert not registry.repositories.get(TARGET) or not registry.repositories[TARGET].tags


@pytest.mark.parametrize("size", [5, 7])
def test_a_blob_that_does_not_match_its_size_is_refused(registry: Registry, size: int) -> None:
    blob = Descriptor("any", str(registry.remote(BASE).put_blob(b"6 long")["digest"]), size)
    with (
        Repository(Reference(registry.address, BASE), is_plain=True) as repository,
        pytest.raises(Rejected, match=f"expected {size} bytes, but received 6"),
    ):
        repository.read(blob)


def test_an_interrupted_upload_is_retried(registry: Registry, single: PushOptions) -> None:
    put_base(registry.remote(BASE), "3.13")
    broken: list[str] = []

    def breaks_once(method: str, path: str) -> Answer | None:
        if method == "PUT" and f"{TARGET}/blobs" in path and not broken:
            broken.append(path)
            return Answer(0)
        return None

    registry.broken = breaks_once
    pushed = push(registry, single)
    assert broken
    assert registry.repositories[TARGET].tags == {__version__: pushed.digest}


def test_repeatedly_interrupted_uploads_fail_with_a_hint_to_continue(
    registry: Registry, single: PushOptions
) -> None:
    put_base(registry.remote(BASE), "3.13")
    registry.broken = lambda method, path: (
        Answer(0) if method == "PUT" and f"{TARGET}/blobs" in path else None
    )
    with pytest.raises(Transient, match=r"upload of sha256:.*run the command again to continue"):
        push(registry, single)
    assert len([path for method, path in registry.written() if method == "PUT" and TARGET in path]) == 3


def test_a_failing_registry_is_transient_and_sent_parts_are_not_sent_again(
    registry: Registry, single: PushOptions
) -> None:
    put_base(registry.remote(BASE), "3.13")
    registry.broken = lambda method, path: Answer(503) if method == "PUT" and "manifests" in path else None
    with pytest.raises(Transient, match="503"):
        push(registry, single)
    registry.broken = lambda _method, _path: None
    registry.requests.clear()
    pushed = push(registry, single)
    fates = {part.what: part.result for part in pushed.parts}
    assert (fates["nodesmith and nodesmith_forwarder"], fates["index"]) == ("there", "uploaded")


def test_a_registry_that_stores_something_else_is_detected(registry: Registry, single: PushOptions) -> None:
    put_base(registry.remote(BASE), "3.13")
    elsewhere = Answer(201, {"Docker-Content-Digest": f"sha256:{'0' * 64}"})
    registry.broken = lambda method, path: (
        elsewhere if method in {"PUT", "HEAD"} and path.endswith(__version__) else None
    )
    with pytest.raises(Rejected, match="the registry has sha256:0000"):
        push(registry, single)


def test_an_unreachable_registry_is_transient(options: PushOptions) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Transient, match=f"127.0.0.1:{port}.*refused"):
        push_image(f"127.0.0.1:{port}/{TARGET}", options)


def test_a_registry_that_requires_a_login_is_reported_with_how_to_log_in(options: PushOptions) -> None:
    with running(login=("ci", "secret")) as registry, pytest.raises(Rejected, match="not sent over http"):
        push(registry, replace(options, credentials=Credentials("ci", "secret", "--username ci")))
    assert registry.requests
    assert not registry.written()


def test_a_403_names_the_user(registry: Registry, single: PushOptions) -> None:
    put_base(registry.remote(BASE), "3.13")
    said = b'{"errors": [{"code": "DENIED", "message": "read only"}]}'
    registry.broken = lambda method, path: (
        Answer(403, {}, said) if method == "POST" and TARGET in path else None
    )
    with pytest.raises(Rejected, match="403: DENIED read only: an anonymous user is not allowed"):
        push(registry, single)


def test_an_existing_immutable_tag_is_refused_with_the_registrys_message(
    registry: Registry, single: PushOptions
) -> None:
    put_base(registry.remote(BASE), "3.13")
    said = b'{"errors": [{"code": "TAG_INVALID", "message": "the tag is immutable"}]}'
    registry.broken = lambda method, path: (
        Answer(400, {}, said) if method == "PUT" and path.endswith("v1") else None
    )
    with pytest.raises(Rejected, match="400: TAG_INVALID the tag is immutable"):
        push(registry, single, f"{TARGET}:v1")


def test_a_wheel_that_does_not_match_its_pin_is_refused(
    registry: Registry, single: PushOptions, tmp_path: Path
) -> None:
    put_base(registry.remote(BASE), "3.13")
    make_wheel(tmp_path / "wheels", "plain", {"plain/__init__.py": b"any = 2\n"})
    with pytest.raises(Rejected, match=r"DO NOT MATCH THE HASHES|No matching distribution"):
        push(registry, single)


def run(registry: Registry, options: PushOptions, *arguments: str) -> tuple[int, str, str]:
    wheels = ["--wheels", str(options.wheels)]
    base = ["--base", f"{registry.address}/{BASE}:3.13", "--insecure"]
    command = ["image", "push", f"{registry.address}/{TARGET}", *base, *wheels, *arguments]
    result = CliRunner().invoke(app, command)
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def own_pins(options: PushOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the command use the wheels of the test only."""
    pins = {"_image/forwarder.txt": options.requirements}
    monkeypatch.setattr(
        "nodesmith_cli.deployment.image.pushing.shipped",
        lambda name, beside: pins.get(name) or shipped(name, beside),
    )


@pytest.mark.usefixtures("own_pins")
def test_the_last_line_on_standard_output_is_the_reference_by_digest(
    registry: Registry, options: PushOptions
) -> None:
    put_base(registry.remote(BASE), "3.13")
    status, out, err = run(registry, options)
    digest = registry.repositories[TARGET].tags[__version__]
    assert (status, out) == (0, f"{registry.address}/{TARGET}@{digest}\n")
    assert "linux/arm64: sha256:" in err
    assert f"{TARGET}:{__version__}: pushed" in err


@pytest.mark.usefixtures("own_pins")
def test_json_output_is_complete(registry: Registry, options: PushOptions) -> None:
    put_base(registry.remote(BASE), "3.13")
    status, out, _ = run(registry, options, "-o", "json", "--dry-run", "--platform", "linux/amd64")
    reported = json.loads(out)
    assert (status, reported["dryRun"], list(reported["platforms"])) == (0, True, ["linux/amd64"])
    assert reported["reference"] == f"{registry.address}/{TARGET}@{reported['digest']}"
    assert {part["state"] for part in reported["parts"]} == {"missing"}


@pytest.mark.usefixtures("own_pins")
def test_transient_errors_exit_with_status_one(registry: Registry, options: PushOptions) -> None:
    registry.broken = lambda _method, _path: Answer(503)
    status, out, err = run(registry, options)
    assert (status, out) == (1, "")
    assert "503" in err
