from __future__ import annotations

import gzip
import os
import tarfile
import time
from hashlib import sha256
from pathlib import Path

import pytest

from nodesmith.errors import Rejected
from nodesmith_cli.deployment.image.layers import Entry, package_entries, write_layer
from nodesmith_cli.deployment.image.wheels import wheel_entries
from tests.registries.wheels import make_wheel

FILES = {"pkg/a.py": b"a = 1\n", "pkg/sub/b.py": b"b = 2\n", "pkg-info/x": b"", "pkg/run": b"#!"}


def entries(names: list[str]) -> dict[str, Entry]:
    return {name: Entry(lambda name=name: FILES[name], name.endswith("run")) for name in names}  # type: ignore[misc]


def members(path: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(path) as archive:
        return {member.name: member for member in archive}


def test_a_layer_does_not_depend_on_order_or_time(tmp_path: Path) -> None:
    first = write_layer(tmp_path / "first.tar.gz", entries(sorted(FILES)), "/app", "first")
    time.sleep(1.1)  # gzip and tar count seconds
    second = write_layer(tmp_path / "second.tar.gz", entries(sorted(FILES)[::-1]), "/app", "second")
    assert first.path.read_bytes() == second.path.read_bytes()
    assert (first.digest, first.diff_id, first.size) == (second.digest, second.diff_id, second.size)


def test_a_layers_digests_and_size_are_those_of_its_file_and_its_content(tmp_path: Path) -> None:
    layer = write_layer(tmp_path / "layer.tar.gz", entries(list(FILES)), "/app", "layer")
    packed = layer.path.read_bytes()
    assert (layer.digest, layer.size) == (f"sha256:{sha256(packed).hexdigest()}", len(packed))
    assert layer.diff_id == f"sha256:{sha256(gzip.decompress(packed)).hexdigest()}"


def test_entries_are_owned_by_root_readable_by_all_and_without_a_time(tmp_path: Path) -> None:
    found = members(write_layer(tmp_path / "layer.tar.gz", entries(list(FILES)), "/app", "layer").path)
    assert list(found) == sorted(found)
    assert {"app", "app/pkg", "app/pkg/sub"} <= found.keys()
    assert {(each.uid, each.gid, each.uname, each.mtime) for each in found.values()} == {(0, 0, "", 0)}
    assert found["app/pkg"].mode == found["app/pkg/run"].mode == 0o755
    assert found["app/pkg/a.py"].mode == 0o644


def test_a_package_layer_contains_sources_and_no_compiled_files(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    (package / "__pycache__").mkdir(parents=True)
    (package / "__pycache__" / "a.cpython-313.pyc").write_bytes(b"compiled")
    (package / "a.py").write_text("a = 1\n")
    (package / "data.json").write_text("{}")
    os.chmod(package / "a.py", 0o600)  # noqa: PTH101 as after a checkout with a strict umask
    found = package_entries(package)
    assert {name: entry.read() for name, entry in found.items()} == {
        "pkg/a.py": b"a = 1\n",
        "pkg/data.json": b"{}",
    }
    assert not any(entry.is_executable for entry in found.values())


def test_a_wheel_provides_its_importable_files(tmp_path: Path) -> None:
    files = {
        "pkg/__init__.py": b"",
        "pkg-1.0.data/platlib/pkg/fast.so": b"elf",
        "pkg-1.0.data/purelib/pkg/pure.py": b"pure",
        "pkg-1.0.data/scripts/pkg": b"#!python",
        "pkg-1.0.data/headers/pkg.h": b"int",
    }
    with wheel_entries([make_wheel(tmp_path, "pkg", files)]) as found:
        own = {name: entry.read() for name, entry in found.items() if ".dist-info" not in name}
    assert own == {"pkg/__init__.py": b"", "pkg/fast.so": b"elf", "pkg/pure.py": b"pure"}


@pytest.mark.parametrize("name", ["../outside.py", "/etc/passwd", "pkg-1.0.data/purelib/../../x"])
def test_a_wheel_with_paths_outside_the_archive_is_refused(tmp_path: Path, name: str) -> None:
    with (
        pytest.raises(Rejected, match="is outside the archive"),
        wheel_entries([make_wheel(tmp_path, "pkg", {name: b""})]),
    ):
        pass


def test_a_broken_wheel_is_reported_by_name(tmp_path: Path) -> None:
    (tmp_path / "pkg-1.0-py3-none-any.whl").write_bytes(b"<html>")
    with (
        pytest.raises(Rejected, match=r"pkg-1.0-py3-none-any.whl is not a wheel"),
        wheel_entries(list(tmp_path.iterdir())),
    ):
        pass
