"""An image from a registry as a folder, as a container runtime lays it out; `python` is the tests' interpreter."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any
from venv import EnvBuilder

import requests

from tests.e2e.incluster.image import Image
from tests.registries.bases import OCI, Remote, digest_of


def pull_image(repository: Remote, digest: str, platform: str, folder: Path) -> Image:
    """Pull by the index's digest and unpack the layers in order; everything is checked against its digest."""
    index = json.loads(_get(repository, "manifests", digest))
    manifest = json.loads(_get(repository, "manifests", _chosen(index, platform)))
    config = json.loads(_get(repository, "blobs", manifest["config"]["digest"]))
    root = folder / "root"
    for layer, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
        _unpack(_get(repository, "blobs", layer["digest"]), diff_id, root)
    return _image(config["config"], root, folder / "python")


def _get(repository: Remote, kind: str, digest: str) -> bytes:
    accepted = f"{OCI}.index.v1+json, {OCI}.manifest.v1+json"
    url = f"{repository.url}{kind}/{digest}"
    answer = requests.get(url, headers={"Accept": accepted}, auth=repository.login, timeout=30)
    answer.raise_for_status()
    assert digest_of(answer.content) == digest
    return answer.content


def _chosen(index: dict[str, Any], platform: str) -> str:
    platforms = {f"{p['platform']['os']}/{p['platform']['architecture']}": p for p in index["manifests"]}
    return str(platforms[platform]["digest"])


def _unpack(packed: bytes, diff_id: str, root: Path) -> None:
    plain = gzip.decompress(packed)
    assert digest_of(plain) == diff_id
    with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
        archive.extractall(root, filter="data")


def _image(settings: dict[str, Any], root: Path, environment: Path) -> Image:
    program, *arguments = settings["Entrypoint"]
    assert program == "python"
    EnvBuilder(symlinks=True).create(environment)
    variables = dict(each.split("=", 1) for each in settings["Env"])
    (port,) = settings["ExposedPorts"]
    found = {name: str(root / text[1:]) if name == "PYTHONPATH" else text for name, text in variables.items()}
    command = (str(environment / "bin" / "python"), *arguments)
    return Image(root, command, found, int(port.partition("/")[0]))
