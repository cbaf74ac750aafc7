"""The checks of kubeconfigs and files that run before any input is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodesmith.errors import Rejected, Transient
from nodesmith_cli.access.cluster import server_of
from nodesmith_cli.access.preconditions import require_every_file, require_files, require_kubeconfig
from nodesmith_cli.access.selecting import chosen_kubeconfig
from nodesmith_cli.costs.savings.running import context_name
from nodesmith_formats.localsystem.contexts import ContextName

CONFIG = """
apiVersion: v1
kind: Config
contexts: [{name: %s, context: {cluster: a, user: a}}]
"""

SERVED = """
apiVersion: v1
kind: Config
current-context: %(context)s
clusters: [{name: c, cluster: {server: "http://127.0.0.1:%(port)s"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: %(context)s, context: {cluster: c, user: u}}]
"""


@pytest.fixture
def usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with two kubeconfigs in KUBECONFIG, which have the contexts `prod` and `test`."""
    for name in ("prod", "test"):
        (tmp_path / name).write_text(CONFIG % name)
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'prod'}:{tmp_path / 'gone'}:{tmp_path / 'test'}")
    return tmp_path


@pytest.mark.usefixtures("usual")
@pytest.mark.parametrize("context", ["", "prod", "test"])
def test_a_context_in_any_kubeconfig_is_accepted(context: str) -> None:
    require_kubeconfig(context)


def test_a_kubeconfig_file_is_accepted_as_a_context(usual: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    require_kubeconfig(str(usual / "prod"))


@pytest.mark.usefixtures("usual")
def test_an_unknown_context_is_refused_with_the_existing_ones() -> None:
    with pytest.raises(Rejected, match=r"--kubeconfig prud: neither a context .* did you mean 'prod'\?"):
        require_kubeconfig("prud")
    with pytest.raises(Rejected, match="nor a file; contexts: prod, test"):
        require_kubeconfig("elsewhere")


@pytest.mark.usefixtures("usual")
def test_an_unknown_context_is_refused_under_the_option_that_named_it() -> None:
    with pytest.raises(Rejected, match=r"^--context prud: no such context in \S+, did you mean 'prod'\?$"):
        require_kubeconfig(chosen_kubeconfig("", "prud"))
    with pytest.raises(Rejected, match=r"^--context elsewhere: no such context in .*; contexts: prod, test$"):
        require_kubeconfig(chosen_kubeconfig("", "elsewhere"))


def test_a_context_that_needs_a_kubeconfig_says_that_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    with pytest.raises(Rejected, match=r"^--context prod: there is no kubeconfig at /nowhere$"):
        require_kubeconfig(ContextName("prod"))


def test_a_context_is_never_a_file_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for kubectl: a file `prod` in the current folder may be the kubeconfig of another cluster."""
    (tmp_path / "config").write_text(SERVED % {"context": "prod", "port": 1})
    (tmp_path / "prod").write_text(SERVED % {"context": "prod", "port": 2})
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)

    named = chosen_kubeconfig("", "prod")
    require_kubeconfig(named)
    with pytest.raises(Transient, match="port=1"):
        server_of(named, patience_seconds=0).get("/version")
    assert context_name(named) == "prod"
    for file in (chosen_kubeconfig("prod", ""), chosen_kubeconfig("prod", "prod")):
        with pytest.raises(Transient, match="port=2"):
            server_of(file, patience_seconds=0).get("/version")


def test_an_unusable_kubeconfig_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config"
    file.write_text("[1, 2]")
    with pytest.raises(Rejected, match=f"^--kubeconfig {file}: not a kubeconfig"):
        server_of(str(file))
    monkeypatch.setenv("KUBECONFIG", str(file))
    with pytest.raises(Rejected, match=f"^kubeconfig {file}: not a kubeconfig"):
        server_of("")


def test_an_unreadable_kubeconfig_is_accepted_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken").write_text("contexts: [")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "broken"))
    require_kubeconfig("prod")


@pytest.mark.parametrize("text", ["contexts: 5", "contexts: [5]", "contexts: {a: 1}", "- a", "text"])
def test_contexts_of_another_form_are_accepted_at_first(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd").write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "odd"))
    require_kubeconfig("prod")


def test_files_are_refused_if_none_of_them_exists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require_files(["gone.yaml", str(tmp_path)], "plan from")
    require_files(["gone.yaml", "-"], "plan from")
    with pytest.raises(Rejected, match=r"nothing to plan from: gone.yaml, a\x00b: no readable object"):
        require_files(["gone.yaml", "a\x00b"], "plan from")
    assert capsys.readouterr().err.splitlines()[0] == "gone.yaml: No such file or directory"


def test_a_plan_needs_every_file_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "there.yaml"
    there.touch()
    require_every_file([str(there), "-", str(tmp_path)])
    with pytest.raises(Rejected, match=r"^gone.yaml: No such file or directory; '': is no file name$"):
        require_every_file([str(there), "gone.yaml", ""])
    monkeypatch.setattr("os.access", lambda _path, _mode: False)
    with pytest.raises(Rejected, match=r"there.yaml: Permission denied$"):
        require_every_file([str(there)])
