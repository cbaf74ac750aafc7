import re
import sys
from pathlib import Path

import pytest

from layers.vendor import build
from layers.vendor.models import OPERATIONS

ROOT = Path(__file__).parents[3]
CLIENT = re.compile(r"""\bclient\(\s*["']([\w-]+)["']""")


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    for name in [
        "bin/jp.py",
        "boto3/session.py",
        "boto3-1.dist-info/METADATA",
        "boto3-1.dist-info/RECORD",
        "botocore/data/ec2/2016-11-15/service-2.json.gz",
        "botocore/data/ec2/2016-11-15/examples-1.json.gz",
        "botocore/data/partitions.json",
        "botocore/data/route53/2013-04-01/service-2.json.gz",
        "six/tests/test_six.py",
    ]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


def test_a_layer_keeps_what_functions_import_and_nothing_else(wheels: Path) -> None:
    build.prune(wheels)
    assert {str(path.relative_to(wheels)) for path in wheels.rglob("*") if path.is_file()} == {
        "boto3/session.py",
        "boto3-1.dist-info/METADATA",
        "botocore/data/ec2/2016-11-15/service-2.json.gz",
        "botocore/data/partitions.json",
    }


def test_every_service_that_the_code_calls_is_in_the_vendor_layer() -> None:
    sources = [*(ROOT / "layers/core/python").rglob("*.py"), *(ROOT / "functions").rglob("*.py")]
    used = {service for path in sources for service in CLIENT.findall(path.read_text())}
    assert used <= build.SERVICES


def test_every_service_whose_operations_are_kept_is_in_the_vendor_layer() -> None:
    assert OPERATIONS.keys() <= build.SERVICES


def test_the_layers_contain_the_versions_that_the_tests_ran_on() -> None:
    tested = build.pins("run")
    for name in ("lambda", "lambda-packing", "forwarder"):
        deployed = build.pins(name)
        assert deployed
        assert deployed.keys() <= tested.keys()
        assert {project: version(pin) for project, pin in deployed.items()} == {
            project: version(tested[project]) for project in deployed
        }


def test_pins_are_read_with_all_their_hashes() -> None:
    pin = build.pins("lambda")["boto3"]
    assert pin.startswith("boto3==")
    assert pin.count("--hash=sha256:") == 2


def test_the_core_layer_is_rebuilt_only_when_a_module_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = tmp_path / "core"
    (core / "nodesmith").mkdir(parents=True)
    module = core / "nodesmith" / "errors.py"
    module.write_text("first = 1\n")
    monkeypatch.setattr(build, "CORE", core)
    layer = build.core_layer(tmp_path / "layer")
    built = layer / "python" / "nodesmith" / "errors.py"
    assert built.stat().st_mtime == build.TIME

    (layer / "kept").touch()
    build.core_layer(layer)
    assert (layer / "kept").exists()

    module.write_text("second = 2\n")
    build.core_layer(layer)
    assert built.read_text() == "second = 2\n"
    assert not (layer / "kept").exists()


def test_an_uncompiled_layer_is_rebuilt_once_its_python_is_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = build.Machine("3.99", "any")
    found: list[Path] = []
    monkeypatch.setattr(build, "compiler", lambda _: next(iter(found), None))
    layer = build.core_layer(tmp_path / "layer", machine)
    assert list(layer.rglob("*.pyc")) == []

    found.append(Path(sys.executable))
    build.core_layer(tmp_path / "layer", machine)
    compiled = {path.stat().st_mtime for path in layer.rglob("*.pyc")}
    assert compiled == {build.TIME}

    found.clear()
    (layer / "kept").touch()
    build.core_layer(tmp_path / "layer", machine)
    assert (layer / "kept").exists()


def test_layers_over_the_limit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module.py").write_bytes(b"#" * 2**20)
    build.check_size({"vendor": tmp_path})
    monkeypatch.setattr(build, "LIMIT_MIB", 0.5)
    with pytest.raises(SystemExit, match="exceed Lambda"):
        build.check_size({"vendor": tmp_path})


def version(pin: str) -> str:
    return pin.split()[0]
