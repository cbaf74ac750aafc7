"""Functions as processes: their contents, when one starts, and how it ends. The tests bring their own handlers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.functions import loopdetection
from tests.e2e.deployed import Faults
from tests.e2e.deployed.assembled import REGION, Edit, changed, region_template, unchanged
from tests.e2e.deployed.assembly import Assembly
from tests.e2e.deployed.faults import Mortal
from tests.e2e.deployed.functions import DeployedFunction, FunctionCode, InvocationFailed, read_function
from tests.patience import eventually

PROBE = """
import importlib, os, time

def handler(event, context):
    if "sleep" in event:
        time.sleep(event["sleep"])
    if "until" in event:
        while not os.path.exists(event["until"]):
            time.sleep(0.02)
    if "raise" in event:
        raise KeyError(event["raise"])
    found = {}
    for name in event.get("import", ()):
        try:
            found[name] = importlib.import_module(name).__file__
        except ModuleNotFoundError:
            found[name] = ""
    return {"pid": os.getpid(), "modules": found, "environment": dict(os.environ),
            "left": context.get_remaining_time_in_millis() / 1000, "arn": context.invoked_function_arn}
"""


@contextmanager
def probe(code: FunctionCode, folder: Path, clock: LocalClock) -> Iterator[DeployedFunction]:
    """Yield the function with a probing handler; everything else is as deployed."""
    task = folder / "task"
    task.mkdir(parents=True)
    (task / "handler.py").write_text(PROBE)
    own = replace(code, task=task)
    function = DeployedFunction(own, {}, folder / code.concern, clock)
    yield function
    function.close()


def function_code(assembly: Assembly, concern: str, edit: Edit = unchanged) -> FunctionCode:
    template = region_template(assembly, edit)
    (id_,) = (
        id_
        for id_, each in template.of_type("Lambda::Function").items()
        if each["FunctionName"].endswith(f"-{concern}")
    )
    return read_function(template, id_, assembly, REGION)


def test_functions_import_from_the_layers_and_not_from_this_environment(
    assembly: Assembly, folder: Path
) -> None:
    wanted = {
        "import": ["nodesmith", "boto3", "aws_lambda_powertools", "urllib3", "kubernetes", "pytest", "moto"]
    }
    with probe(function_code(assembly, "lifecycle"), folder, LocalClock()) as function:
        modules = function(wanted)["modules"]
    layers = {name: Path(path).parents[2].name.partition(".")[0] for name, path in modules.items() if path}
    assert layers == dict.fromkeys(["nodesmith", "boto3", "aws_lambda_powertools", "urllib3"], "asset")


def test_a_function_gets_the_trace_header_of_its_invocation(assembly: Assembly, folder: Path) -> None:
    trace = loopdetection.invoked([], "lifecycle")
    with probe(function_code(assembly, "lifecycle"), folder, LocalClock()) as function:
        reported = [function({}, *given)["environment"].get("_X_AMZN_TRACE_ID") for given in ([trace], [])]
    assert reported == [trace, None]


def test_a_functions_context_names_the_alias_of_its_invocation(assembly: Assembly, folder: Path) -> None:
    with probe(function_code(assembly, "lifecycle"), folder, LocalClock()) as function:
        reported = [
            function({}, "", arn)["arn"].rpartition(":")[2] for arn in ("nodesmith-lifecycle:canary", "")
        ]
    assert reported == ["canary", "live"]


def test_a_function_sees_only_the_variables_of_the_template_and_of_lambda(
    assembly: Assembly, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "mine")
    template = region_template(assembly)
    with probe(function_code(assembly, "provisioning"), folder, LocalClock()) as function:
        answer = function({})
    found = answer["environment"]
    stated = template.function("provisioning")["Environment"]["Variables"]
    assert {name: found[name] for name in stated} == stated
    assert found["AWS_REGION"] == REGION
    assert found["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"] == "1769"
    assert answer["arn"].endswith(":function:nodesmith-provisioning:live")
    others = found.keys() - stated.keys()
    assert {n for n in others if not n.startswith(("AWS_", "_", "LC_"))} == {
        *("LAMBDA_TASK_ROOT", "LANG", "PATH", "PYTHONPATH", "TZ")
    }
    assert "AWS_PROFILE" not in found


def test_a_process_is_reused_and_a_second_starts_only_while_the_first_is_busy(
    assembly: Assembly, folder: Path
) -> None:
    with probe(function_code(assembly, "provisioning"), folder, LocalClock()) as function:
        first, again = function({})["pid"], function({})["pid"]
        with busy(function, folder / "released"):
            second = function({})["pid"]
    assert first == again != second


def test_the_process_of_a_function_that_raises_keeps_running(assembly: Assembly, folder: Path) -> None:
    with probe(function_code(assembly, "provisioning"), folder, LocalClock()) as function:
        first = function({})["pid"]
        with pytest.raises(InvocationFailed, match="KeyError: 'a bug'"):
            function({"raise": "a bug"})
        assert function({})["pid"] == first


def test_a_function_is_killed_when_it_times_out(assembly: Assembly, folder: Path) -> None:
    code = function_code(
        assembly, "provisioning", changed("AWS::Lambda::Function", "provisioning", Timeout=5)
    )
    with probe(code, folder, LocalClock()) as function:
        first = function({})
        assert 0 < first["left"] <= 5
        with pytest.raises(InvocationFailed, match=r"Task timed out after 5\.00 seconds"):
            function({"sleep": 30})
        assert function({})["pid"] != first["pid"]


def test_a_killed_function_restarts_without_its_predecessors_state(assembly: Assembly, folder: Path) -> None:
    with probe(function_code(assembly, "provisioning"), folder, LocalClock()) as function:
        answers = [function({"import": ["nodesmith"]})]
        for _ in range(2):
            _kill_at_work(function)
            answers.append(function({"import": ["nodesmith"]}))
            with pytest.raises(InvocationFailed, match="KeyError"):
                function({"raise": "a bug"})
    assert len({answer.pop("pid") for answer in answers}) == 3
    for answer in answers:
        answer["environment"].pop("AWS_LAMBDA_RUNTIME_API")
        answer.pop("left")
    assert answers[0] == answers[1] == answers[2]
    assert "KeyError" in (folder / "provisioning" / "002.log").read_text()


def test_the_invocation_after_a_kill_starts_a_new_process(assembly: Assembly, folder: Path) -> None:
    with probe(function_code(assembly, "provisioning"), folder, LocalClock()) as function:
        assert not function.kill()
        first = function({})["pid"]
        assert not function.kill(), "it is idle"
        _kill_at_work(function)
        assert function({})["pid"] != first


def test_only_a_busy_process_is_killed(assembly: Assembly, folder: Path) -> None:
    with probe(function_code(assembly, "provisioning"), folder, LocalClock()) as function:
        with busy(function, folder / "released"):
            idle = function({})["pid"]
        _kill_at_work(function)  # kills the other process, which was the last to be busy
        assert function({})["pid"] == idle


@contextmanager
def busy(function: DeployedFunction, released: Path) -> Iterator[None]:
    """Keep one process of the function busy for the duration of the block."""
    caller = threading.Thread(target=function, args=[{"until": str(released)}])
    caller.start()
    eventually(function.at_work, "it is busy")
    yield
    released.touch()
    caller.join()


def _kill_at_work(function: DeployedFunction) -> None:
    killer = threading.Thread(target=eventually, args=[function.kill, "it is busy and is killed"])
    killer.start()
    with pytest.raises(InvocationFailed, match="ExitError"):
        function({"sleep": 300})
    killer.join()


def test_faults_kill_the_given_number_of_invocations(assembly: Assembly, folder: Path) -> None:
    with probe(function_code(assembly, "provisioning"), folder, LocalClock()) as function:
        mortal, failed = Mortal(function), 0
        mortal.endanger(Faults(seed=3, kills=2))
        for _ in range(10):
            try:
                mortal({"sleep": 0.3})
            except InvocationFailed:
                failed += 1
    assert failed == mortal.killed == 2


def test_a_function_uses_the_faster_clock_of_its_parent_process(assembly: Assembly, folder: Path) -> None:
    clock = LocalClock(1000, start=datetime(2030, 1, 1, tzinfo=UTC))
    with probe(function_code(assembly, "provisioning"), folder, clock) as function:
        (folder / "task" / "handler.py").write_text(
            "from nodesmith.composition import parts\ndef handler(event, context): return parts.now().isoformat()\n"
        )
        before = clock.now()
        reported = datetime.fromisoformat(function({}))
        after = clock.now()
    assert before < reported < after
