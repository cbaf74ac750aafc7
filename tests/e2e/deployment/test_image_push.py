"""`nodesmith image push` to the CNCF's own registry, and the forwarder run from the pushed image."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodesmith.errors import Rejected
from nodesmith_cli.deployment.image.credentials import Credentials
from nodesmith_cli.deployment.image.pushing import PushOptions, push_image
from nodesmith_cli.deployment.image.wheels import MACHINES
from nodesmith_local.controlplane.certificates import write_certificates
from tests.e2e.conftest import BUILD
from tests.e2e.incluster.container import ROOT
from tests.e2e.incluster.pulled import pull_image
from tests.e2e.incluster.site import site, until
from tests.registries.bases import Remote, put_base
from tests.registries.distribution import LOGIN, running
from tests.registries.wheels import make_wheel, pack_installed, write_pins

pytestmark = pytest.mark.xdist_group("test_image_push")  # the registry is built only once

PINS = ROOT / "requirements" / "forwarder.txt"
HERE = next(f"linux/{name}" for name, machine in MACHINES.items() if platform.machine() in {machine, name})


@pytest.fixture
def registry(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Remote]:
    monkeypatch.setenv("DOCKER_CONFIG", str(folder / "no-docker"))
    with running(folder / "registry") as registry:
        yield registry


def repository(registry: Remote, name: str) -> Remote:
    return Remote(f"{registry.url}/v2/{name}/", registry.login)


def address(registry: Remote, name: str) -> str:
    return f"{registry.url.partition('://')[2]}/{name}"


def small(folder: Path, base: str) -> PushOptions:
    """Return options for an image with one small dependency."""
    wheels = [make_wheel(folder / "wheels", "plain", {"plain/__init__.py": b"any = 1\n"})]
    pins = write_pins(folder / "pins.txt", wheels)
    return PushOptions(base=base, is_plain=True, wheels=folder / "wheels", requirements=pins)


def test_a_second_push_to_a_real_registry_uploads_nothing(registry: Remote, folder: Path) -> None:
    put_base(repository(registry, "library/python"), "3.13")
    options = small(folder, address(registry, "library/python:3.13"))
    first = push_image(address(registry, "team/nodesmith-forwarder:v1"), options)
    again = push_image(address(registry, "team/nodesmith-forwarder:v1"), options)
    assert again.digest == first.digest
    assert {part.result for part in first.parts} == {"mounted", "uploaded"}
    assert {part.result for part in again.parts} == {"there"}
    for each in ("linux/amd64", "linux/arm64"):
        image = pull_image(
            repository(registry, "team/nodesmith-forwarder"), first.digest, each, folder / each
        )
        assert (image.root / "etc" / "architecture").read_text() == each.partition("/")[2]


def test_layers_of_a_base_in_another_real_registry_are_copied(registry: Remote, folder: Path) -> None:
    with running(folder / "other") as other:
        put_base(repository(other, "library/python"), "3.13", docker=True)
        options = small(folder, address(other, "library/python:3.13"))
        pushed = push_image(address(registry, "nodesmith-forwarder"), options)
    assert [part.result for part in pushed.parts if part.what.startswith("base")] == ["uploaded"] * 2


def test_a_real_registry_admits_only_pushes_with_its_password(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_certificates(tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.crt"))
    with running(folder / "registry", certificates=tmp_path) as registry:
        put_base(repository(registry, "python"), "3.13")
        plain = small(folder, address(registry, "python:3.13"))

        def push(password: str) -> str:
            login = Credentials(LOGIN[0], password, "--username ci")
            options = PushOptions(
                plain.base, credentials=login, wheels=plain.wheels, requirements=plain.requirements
            )
            return push_image(address(registry, "nodesmith-forwarder"), options).digest

        assert push(LOGIN[1]).startswith("sha256:")
        with pytest.raises(Rejected, match="401: the registry refused the credentials from --username ci"):
            push("guessed")


def test_the_forwarder_runs_in_a_cluster_from_the_pushed_image(registry: Remote, folder: Path) -> None:
    """Push wheels of the packages installed beside the tests, for the tests' Python; the package index is not used."""
    put_base(repository(registry, "python"), "here", platforms=[HERE], python=platform.python_version())
    names = re.findall(r"^([\w.-]+)==", PINS.read_text(), re.MULTILINE)
    pins = write_pins(folder / "pins.txt", pack_installed(folder / "wheels", names))
    options = PushOptions(
        base=address(registry, "python:here"),
        platforms=[HERE],
        is_plain=True,
        wheels=folder / "wheels",
        requirements=pins,
    )
    pushed = push_image(address(registry, "nodesmith-forwarder"), options)
    image = pull_image(repository(registry, "nodesmith-forwarder"), pushed.digest, HERE, folder / "image")
    with (
        site(BUILD / "test_image_push" / "site", speed=10) as cluster,
        cluster.forwarder(folder, image=image) as forwarder,
    ):
        cluster.create_impossible_pod("waiting")
        forwarder.start()
        until("the forwarder is ready", lambda: forwarder.ready, forwarder)
        until("it has seen the pod", lambda: cluster.seen() == {"default/waiting": True}, forwarder)
