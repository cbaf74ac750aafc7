import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CONFTEST = ROOT / "tests" / "conftest.py"
COUNTS = {"test_passes.py": "def test_passes():\n    pass\n"}
DO_NOT_COUNT = {
    "test_skipped.py": "import pytest\n\n@pytest.mark.skip(reason='later')\ndef test_it():\n    pass\n",
    "test_xfailed.py": "import pytest\n\n@pytest.mark.xfail\ndef test_it():\n    assert False\n",
    "test_module.py": "import pytest\n\npytest.importorskip('no_such_module')\n",
}


def run_of(folder: Path, files: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(CONFTEST, folder)
    for name, content in files.items():
        (folder / name).write_text(content)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(folder), *options]
    # No plugins: a second quicker. The conftest imports from the checkout's tests.
    bare = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=bare, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "options", [(), ("-p", "xdist.plugin", "-n1", "--dist=loadgroup")], ids=["one process", "workers"]
)
def test_a_run_with_tests_that_did_not_count_fails_and_names_them(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    run = run_of(tmp_path, COUNTS | DO_NOT_COUNT, *options)
    assert run.returncode == pytest.ExitCode.TESTS_FAILED
    [said] = [line for line in run.stdout.splitlines() if line.startswith("skipped without a reason")]
    assert [name for name in DO_NOT_COUNT if name not in said] == []
    assert "test_passes" not in said


def test_a_run_in_which_every_test_counted_passes(tmp_path: Path) -> None:
    assert run_of(tmp_path, COUNTS).returncode == pytest.ExitCode.OK
