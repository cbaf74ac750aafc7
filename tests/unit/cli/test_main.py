from __future__ import annotations

import io
import json
import os
import pty
import runpy
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from nodesmith import __version__
from nodesmith.errors import Rejected
from nodesmith_cli.commands import version
from nodesmith_cli.commands.options import read_plainly
from nodesmith_cli.main import app, main
from nodesmith_cli.simulator.localcommands.commands import BAD_INPUT, OK, PODS_PENDING, exit_status
from nodesmith_formats.manifests.manifests import Fault
from nodesmith_local.runs.report import PendingPod, Report
from nodesmith_local.runs.running import Outcome

POOL = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec: {template: {spec: {requirements: [{key: topology.kubernetes.io/zone, operator: In, values: [%s]}]}}}
"""


EXAMPLE = str(Path(__file__).parents[3] / "examples" / "express-test" / "nodepool.yaml")
HEAVY = frozenset({"boto3", "botocore", "flask", "highspy", "kubernetes", "moto", "numpy", "rich"})
MOST_MODULES = 200
"""Of nodesmith's own, to plan for pods of a few kinds. Each takes half a millisecond to import."""


QUICK: list[tuple[list[str], str]] = [
    (["--help"], "Usage: nodesmith"),
    (["--version"], __version__),
    (["version"], __version__),
    (["local", "--help"], "interrupt"),
    (["plan", "--help"], "--filename"),
    (["image", "push", "--help"], "--password-stdin"),
    (["local", "interrupt", "any"], "no local system runs"),
    (["local", "shift", "us-east-1a"], "no local system runs"),
    (["explain", "pod", "any"], "no decisions found"),
    (["validate", "-f", "nothing.yaml"], "No such file"),
    (["convert", "-f", "nothing.yaml"], "nothing to convert: nothing.yaml: no readable object"),
    (["convert", "-f", EXAMPLE], "kind: NodePool"),
    (["convert", EXAMPLE], "kind: NodePool"),
    (["convert"], "nothing to convert: use -f FILE (- for standard input)"),
    (["hash", EXAMPLE], "NodePool"),
    (["hash"], "nothing to hash: use -f FILE (- for standard input)"),
    (["hash", "nothing.yaml"], "nothing to hash: nothing.yaml: no readable object"),
    (["local", "run"], "nothing to run: use -f FILE (- for standard input)"),
    (["local", "run", "nothing.yaml"], "nothing.yaml: No such file"),
    (["plan"], "nothing to read: use -f FILE"),
    (["plan", "-f", "nothing.yaml"], "nothing.yaml: No such file"),
    (["plan", "--kubeconfig"], "there is no kubeconfig at ~/.kube/config"),
    (["plan", "-f", EXAMPLE, "--region", "us-east-9"], "did you mean"),
    (["status"], "there is no kubeconfig at ~/.kube/config"),
    (["status", "--cluster", "prod"], "--cluster requires --bucket or --keep"),
    (["explain", "node", "--keep", "nowhere"], "no decisions found in nowhere"),
    (["explain", "nodepool"], "no decisions found"),
    (["check-cluster", "--kubeconfig", "prod"], "'prod' is not a file, and there is no kubeconfig"),
    (["uninstall", "--timeout", "soon"], "expected a duration such as"),
    (["uninstall"], "there is no kubeconfig"),
    (["catalog", "--region", "us-east-9"], "did you mean"),
    (["catalog", "m5.large", "-o", "json"], '"name": "m5.large"'),
    (["local", "run", "-f", "nothing.yaml"], "nothing.yaml: No such file"),
    (["local", "run", "-f", EXAMPLE, "--for", "soon"], "expected a duration such as"),
    (["local", "up", "-f", "nothing.yaml"], "nothing to start with: nothing.yaml: no readable object"),
    (["local", "up", "--speed", "0"], "must be between 0.01 and 1000000"),
    (["local", "up", "--region", "us-east-9"], "did you mean"),
    (["demo", "--speed", "0"], "must be between 0.01 and 1000000"),
    (["hash", "-f", "examples/express-test"], "EC2NodeClass"),
    (["connect", "--help"], "Connect an EKS cluster"),
    (["connect", "web", "--vpc", "Shared!"], "expected a name in `vpcs` of cdk.json"),
    (["connect", "web", "--setting", "RESERVED_ENI=1"], "did you mean 'RESERVED_ENIS'?"),
    (["connect", "web", "--image", "forwarder"], "expected an image with a tag or digest"),
    (["connect", "web", "--image", "a:1", "--push", "a"], "--image and --push are mutually exclusive"),
    (["connect", "web", "--timeout", "soon"], "expected a duration such as"),
    (["disconnect", "web", "--timeout", "soon"], "expected a duration such as"),
]
"""Commands that need nothing slow, and a part of what each says."""

_RUN = """
import contextlib, io, json, sys
from nodesmith_cli.main import main
found, known = [], set()
for arguments in json.load(sys.stdin):
    sys.argv, said = ["nodesmith", *arguments], io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        main()
    found.append((said.getvalue(), sorted({each.partition(".")[0] for each in set(sys.modules) - known})))
    known = set(sys.modules)
json.dump(found, sys.stdout)
"""


def imported_by(*commands: list[str]) -> list[tuple[str, list[str]]]:
    """Run commands in one new process; return what each said, and the packages that it was the first to import."""
    environment = {"PYTHONPATH": ":".join(sys.path), "HOME": "/nonexistent"}
    reported = subprocess.run(
        [sys.executable, "-c", _RUN],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    found: list[tuple[str, list[str]]] = json.loads(reported.stdout)
    return found


@pytest.fixture(scope="module")
def quick() -> dict[str, tuple[str, list[str]]]:
    """Return what the quick commands said and imported. A process takes half a second to start, so they share one."""
    commands = [arguments for arguments, _ in QUICK]
    return dict(zip(map(" ".join, commands), imported_by(*commands), strict=True))


@pytest.mark.parametrize(("arguments", "says"), QUICK, ids=[" ".join(arguments) for arguments, _ in QUICK])
def test_a_quick_command_imports_nothing_slow(
    quick: dict[str, tuple[str, list[str]]], arguments: list[str], says: str
) -> None:
    said, packages = quick[" ".join(arguments)]
    assert says in said
    assert HEAVY.intersection(packages) == set()


def modules_of(*arguments: str) -> tuple[str, frozenset[str]]:
    """Run a command in a new process; return what it said on its output, and the modules that it imported."""
    code = f"""
import sys
sys.argv = {["nodesmith", *arguments]!r}
from nodesmith_cli.main import main
try:
    main()
except SystemExit:
    pass
print("imported:", *sys.modules)
"""
    environment = {"PYTHONPATH": ":".join(sys.path), "HOME": "/nonexistent"}
    reported = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    said, _, modules = reported.stdout.partition("imported: ")
    return said, frozenset(modules.split())


def test_a_plan_imports_only_what_it_needs() -> None:
    said, modules = modules_of("plan", "-f", str(Path(EXAMPLE).parent), "-o", "json")
    assert '"nodes"' in said
    assert {module.partition(".")[0] for module in modules} & (HEAVY | {"pydantic"}) == set()
    assert [module for module in modules if module.startswith("nodesmith.decisions.disruption.")] == []
    assert "nodesmith_cli.planning.table" not in modules
    assert sum(module.startswith("nodesmith.") for module in modules) <= MOST_MODULES


def test_collections_of_garbage_are_rare_from_the_first_import_on() -> None:
    program = (
        "import gc, nodesmith; before = gc.get_stats()[0]['collections'];"
        "import nodesmith.composition.runtime, nodesmith.controllers.provisioning;"
        "print(gc.get_stats()[0]['collections'] - before)"
    )
    environment = {"PYTHONPATH": ":".join(sys.path)}
    reported = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    assert int(reported.stdout) <= 3


VALUES: tuple[list[str], ...] = (
    [],
    ["--text", "a", "--listed", "b", "--listed", "c", "d", "e"],
    ["--choice", "two", "--number", "3", "--file", "f.yaml", "--flag", "--parsed", "x"],
    ["--parsed", "wrong"],
    ["--number", "many"],
    ["--text"],
)


def upper(text: str) -> str:
    """Return a value in upper case; reject `wrong`."""
    if text == "wrong":
        raise Rejected("wrong")
    return text.upper()


@pytest.mark.parametrize("arguments", VALUES, ids=" ".join)
def test_options_have_the_values_that_typer_gives_them(arguments: list[str]) -> None:
    def command(
        more: Annotated[list[str] | None, typer.Argument()] = None,
        text: str = "",
        maybe: str | None = None,
        listed: Annotated[list[str] | None, typer.Option()] = None,
        choice: Literal["one", "two"] = "one",
        number: int = 1,
        file: Path | None = None,
        flag: bool = False,
        parsed: Annotated[str, typer.Option(parser=upper)] = "default",
    ) -> None:
        print([more, text, maybe, listed, choice, number, file, flag, parsed])

    own = typer.Typer(rich_markup_mode=None)
    own.command()(command)

    def ran(command: Any) -> tuple[str, int | str | None]:
        reported = io.StringIO()
        try:
            with redirect_stdout(reported), redirect_stderr(reported):
                command(arguments, prog_name="own")
        except SystemExit as ended:
            return reported.getvalue(), ended.code
        except Rejected as error:
            return str(error), None
        raise AssertionError

    assert ran(read_plainly(get_command(own))) == ran(get_command(own))


WRONG_CHOICES = (
    (["validate", "-o", "jsn"], "-o jsn: must be one of text, json, yaml, jsonpath=, did you mean 'json'?"),
    (["top", "--sort", "weight"], "--sort weight: must be one of name, price, cpu"),
    (["ledger", "shop", "move"], "VIEW move: must be one of costs, moves, did you mean 'moves'?"),
    (["completion", "tcsh"], "SHELL tcsh: must be one of bash, zsh, fish, powershell"),
    (["local", "up", "--control-plane", "reel"], "--control-plane reel: must be one of embedded, real"),
)


@pytest.mark.parametrize(
    ("arguments", "said"), WRONG_CHOICES, ids=[" ".join(each) for each, _ in WRONG_CHOICES]
)
def test_a_wrong_choice_is_answered_as_a_wrong_format_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    monkeypatch.setattr("sys.argv", ["nodesmith", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"nodesmith: {said}")


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        (["connect"], "nodesmith connect [OPTIONS] CLUSTER"),
        (["ledger"], "nodesmith ledger [OPTIONS] CLUSTER [VIEW]"),
        (["completion"], "nodesmith completion [OPTIONS] SHELL"),
        (["explain", "pod"], "nodesmith explain pod [OPTIONS] [NAMESPACE/]NAME"),
        (["plan"], "nodesmith plan [OPTIONS] [FILE]..."),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_a_usage_is_that_of_the_reference(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str], usage: str
) -> None:
    monkeypatch.setattr("sys.argv", ["nodesmith", *command, "--help"])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().out.splitlines()[0] == f"Usage: {usage}"


def test_asking_for_help_reads_no_yaml() -> None:
    ((said, packages),) = imported_by(["--help"])
    assert "Usage: nodesmith" in said
    assert "yaml" not in packages


def test_every_command_is_listed() -> None:
    reported = CliRunner().invoke(app, ["--help"]).stdout

    assert all(
        f"  {command} " in reported for command in ("demo", "catalog", "local", "explain", "image", "version")
    )


@pytest.mark.parametrize("group", [[], ["chaos"], ["explain"], ["image"], ["local"]])
def test_short_help_fits_on_one_line(group: list[str]) -> None:
    assert "..." not in CliRunner().invoke(app, [*group, "--help"]).stdout.replace("[ARGS]...", "")


def test_the_version_is_that_of_the_package() -> None:
    reported = json.loads(CliRunner().invoke(app, ["version", "-o", "json"]).stdout)
    assert reported["version"] == __version__
    assert reported["formats"]["snapshot"] >= 4


def test_a_checkout_tells_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = tmp_path / "checkout"
    git = ["git", "-C", str(checkout), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    checkout.mkdir()
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    monkeypatch.setattr(version, "CHECKOUT", checkout)
    assert len(version.commit()) == 12
    assert head.startswith(version.commit())


def test_an_installation_without_a_commit_tells_its_version_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version, "CHECKOUT", tmp_path)
    assert version.short_version() == __version__


def test_unusable_files_exit_with_status_two_and_a_reason(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("kind: [\n")

    result = CliRunner().invoke(
        app, ["local", "run", "-f", str(broken), "-f", str(tmp_path / "missing.yaml")]
    )

    assert result.exit_code == 2
    first, second = result.stderr.splitlines()
    assert first.startswith(f"{broken}:")
    assert second == f"{tmp_path / 'missing.yaml'}: No such file or directory"


@pytest.mark.parametrize(
    ("zones", "options", "said"),
    [
        ("us-east-1a, eu-west-1a", [], "choose one with --region"),
        ("us-east-1a", ["--for", "soon"], "expected a duration such as 90s, 5m or 1h30m"),
        ("us-east-1a", ["--speed", "0"], "must be between 0.01 and 1000000"),
        ("us-east-1a", ["--region", "us-east-9"], "did you mean"),
    ],
)
def test_an_invalid_option_is_refused_with_a_hint(
    tmp_path: Path, zones: str, options: list[str], said: str
) -> None:
    file = tmp_path / "pool.yaml"
    file.write_text(POOL % zones)

    result = CliRunner().invoke(app, ["local", "run", "-f", str(file), *options])

    assert isinstance(result.exception, Rejected)
    assert said in str(result.exception)


def test_an_expected_error_is_one_line_and_status_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["nodesmith", "explain", "decision", "--keep", str(tmp_path)])

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("nodesmith: no decisions found in")


@pytest.mark.parametrize("command", [["version"], ["catalog", "-o", "json"], ["validate", "-f", EXAMPLE]])
def test_output_to_a_full_disk_is_one_line_and_status_two(command: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "nodesmith_cli.main", *command],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={"PYTHONPATH": ":".join(sys.path), "HOME": "/nonexistent"},
        )
    reported = "nodesmith: the output cannot be written: No space left on device\n"
    assert (ran.returncode, ran.stderr) == (2, reported)


@pytest.mark.parametrize(
    ("redirection", "status", "said"),
    [
        (
            "plan -f - <&-",
            2,
            "standard input: is empty\nnodesmith: nothing to plan from: -: no readable object\n",
        ),
        (f"plan -f {Path(EXAMPLE).parent} >&-", 0, ""),
        (f"validate -f {EXAMPLE} >&-", 0, ""),
        ("plan 2>&-", 2, ""),
    ],
)
def test_a_stream_that_is_closed_from_the_start_is_empty(redirection: str, status: int, said: str) -> None:
    """As a daemon starts programs."""
    ran = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -m nodesmith_cli.main {redirection}"],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path), "HOME": "/nonexistent"},
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (status, "", said)


def test_output_to_a_file_is_utf_8_whatever_the_locale_is(tmp_path: Path) -> None:
    """As that of kubectl: manifests are UTF-8."""
    manifest = tmp_path / "pod.yaml"
    manifest.write_text("kind: Pod\napiVersion: v1\nmetadata: {name: a, annotations: {b: 日本}}\n")
    environment = {"PYTHONPATH": ":".join(sys.path), "HOME": "/nonexistent", "PYTHONIOENCODING": "latin-1"}
    for command, said in ((f"convert {manifest}", "日本"), (f"plan {Path(EXAMPLE).parent}", "█")):
        ran = subprocess.run(
            [sys.executable, "-m", "nodesmith_cli.main", *command.split()],
            capture_output=True,
            check=False,
            env=environment,
        )
        assert (ran.returncode, ran.stderr) == (0, b"")
        assert said in ran.stdout.decode("utf-8")


def test_a_terminal_without_utf_8_gets_what_it_can_show() -> None:
    master, slave = pty.openpty()
    ran = subprocess.run(
        [sys.executable, "-m", "nodesmith_cli.main", "plan", str(Path(EXAMPLE).parent)],
        stdout=slave,
        stderr=subprocess.PIPE,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path), "HOME": "/nonexistent", "PYTHONIOENCODING": "latin-1"},
    )
    drawn = os.read(master, 4096).decode("latin-1")
    os.close(master)
    os.close(slave)
    assert ran.returncode == 0
    assert b"Traceback" not in ran.stderr
    assert "to launch at" in drawn


@pytest.mark.parametrize(("value", "is_coloured"), [("", True), ("1", False)])
def test_no_color_turns_colours_off_in_a_terminal(value: str, is_coloured: bool) -> None:
    master, slave = pty.openpty()
    environment = {
        "PYTHONPATH": ":".join(sys.path),
        "HOME": "/nonexistent",
        "TERM": "xterm",
        "NO_COLOR": value,
    }
    ran = subprocess.run(
        [sys.executable, "-m", "nodesmith_cli.main", "validate", "-f", "nothing.yaml"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        check=False,
        env=environment,
    )
    drawn = os.read(master, 4096).decode()
    os.close(master)
    os.close(slave)
    assert ran.returncode == 1
    assert "nothing.yaml: No such file" in drawn
    assert ("\x1b[31m" in drawn) == is_coloured


@pytest.mark.parametrize(
    ("clusters", "port", "said"),
    [
        ("1", "65536", "--port 65536: must be between 0 and 65535"),
        ("3", "65534", "--port 65534: must be between 0 and 65533, because 3 clusters need as many ports"),
        ("1", "-1", "--port -1: must be between 0 and 65535"),
    ],
)
def test_a_port_that_no_api_server_can_have_is_refused(clusters: str, port: str, said: str) -> None:
    result = CliRunner().invoke(app, ["local", "up", "--clusters", clusters, "--port", port])

    assert str(result.exception) == said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("simulate", "--jobs", "0"), "--jobs 0: must be between 1 and 256"),
        (("simulate", "--seeds", "0"), "--seeds 0: must be between 1 and 1000"),
        (
            ("simulate", "--interruptions", "1e9"),
            "--interruptions 1e+09: must be between 0 and 73000 percent",
        ),
        (("simulate", "--interruptions", "nan"), "--interruptions nan: must be between 0 and 73000 percent"),
        (
            ("demo", "--speed", "1e-9"),
            "--speed 1e-09: must be between 0.01 and 1000000; 10 is ten times faster than real time",
        ),
        (
            ("demo", "--speed", "inf"),
            "--speed inf: must be between 0.01 and 1000000; 10 is ten times faster than real time",
        ),
        (
            ("local", "up", "--speed", "0"),
            "--speed 0: must be between 0.01 and 1000000; 10 is ten times faster than real time",
        ),
    ],
)
def test_a_number_outside_its_range_is_refused_with_the_range(arguments: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(app, arguments)

    assert str(result.exception) == said


@pytest.mark.parametrize(
    ("command", "settings", "said"),
    [
        (("pause", "--cluster", "a"), {}, "no AWS region is set: use --region, or set AWS_REGION"),
        (
            ("resume", "--cluster", "a"),
            {"AWS_REGION": "us-east-1"},
            "no AWS credentials found: log in (aws sso login), or set AWS_PROFILE",
        ),
        (
            ("explain", "decisions", "--cluster", "a", "--bucket", "b"),
            {"AWS_REGION": "us-east-1"},
            "no AWS credentials found: log in",
        ),
        (
            ("status", "--cluster", "a", "--bucket", "b"),
            {"AWS_PROFILE": "nobody"},
            "AWS configuration: The config",
        ),
    ],
)
def test_incomplete_aws_configuration_is_one_line_and_status_two(
    command: tuple[str, ...],
    settings: dict[str, str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    nowhere = {name: str(tmp_path / name) for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")}
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {"AWS_EC2_METADATA_DISABLED": "true", **nowhere, **settings}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.argv", ["nodesmith", *command])

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"nodesmith: {said}")


@pytest.mark.parametrize("command", [["status"], ["explain", "node"]])
@pytest.mark.parametrize("option", [["--cluster", "prod"], ["--region", "us-east-1"]])
def test_a_cluster_name_requires_a_bucket_or_a_folder(command: list[str], option: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, *option])

    assert isinstance(result.exception, Rejected)
    assert str(result.exception).startswith(f"{option[0]} requires --bucket or --keep; use --kubeconfig")


@pytest.mark.parametrize("command", [["status"], ["explain", "node"]])
@pytest.mark.parametrize("option", [["--keep", "."], ["--bucket", "b", "--cluster", "prod"]])
def test_a_context_chooses_no_cluster_of_records(command: list[str], option: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, *option, "--context", "prod"])

    assert isinstance(result.exception, Rejected)
    assert str(result.exception).startswith(f"--context prod and {option[0]} are mutually exclusive")


@pytest.mark.parametrize(
    ("pending", "faults", "status"),
    [(0, 0, OK), (1, 0, PODS_PENDING), (0, 1, BAD_INPUT), (1, 1, PODS_PENDING)],
)
def test_pending_pods_take_precedence_over_bad_input_in_the_exit_status(
    pending: int, faults: int, status: int
) -> None:
    report = Report((), (PendingPod("default/a", "none"),) * pending)

    assert exit_status(Outcome(report, (), (Fault("bad", "x.yaml"),) * faults)) == status


def test_a_run_that_was_given_up_has_failed() -> None:
    """Before a Deployment has its pods, none of them is pending."""
    report = Report((), ())
    assert exit_status(Outcome(report, (), ())) == OK
    assert (
        exit_status(Outcome(report, (), (), "Deployment/web does not have all its pods yet")) == PODS_PENDING
    )


def test_the_package_runs_as_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["nodesmith_cli", "plan", "--no-such-option"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("nodesmith_cli", run_name="__main__")
    assert ended.value.code == 2
    assert "No such option: --no-such-option" in capsys.readouterr().err
