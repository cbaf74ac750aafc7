"""`nodesmith rollback`: the target release, and the functions that are switched."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
import typer

from nodesmith.errors import Rejected
from nodesmith_cli.deployment.rollback.command import rollback
from nodesmith_cli.deployment.rollback.functions import Functions
from nodesmith_cli.deployment.rollback.releases import FunctionVersion, releases, target
from tests.aws.account import REGION, client, strict_aws

NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)
BOTH = ("nodesmith-dispatch", "nodesmith-lifecycle")


def published(*deployments: str) -> list[FunctionVersion]:
    """Return the versions of two functions, one per deployment. dispatch has one more, older version."""
    return [
        FunctionVersion(function, number + (function == BOTH[0]), release, NOON + timedelta(days=number))
        for number, release in enumerate(deployments, start=1)
        for function in BOTH
    ]


def serving(dispatch: int, lifecycle: int) -> dict[str, int]:
    return dict(zip(BOTH, (dispatch, lifecycle), strict=True))


def test_versions_deployed_together_are_one_release_sorted_newest_first() -> None:
    found = releases(published("1-a", "2-b"), serving(3, 2))

    assert [each.name for each in found] == ["2-b", "1-a"]
    assert found[0].versions == {"nodesmith-dispatch": 3, "nodesmith-lifecycle": 2}
    assert [sorted(each.serving) for each in found] == [list(BOTH), []]


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        (serving(4, 3), "2-b"),  # the newest serves
        (serving(3, 2), "1-a"),  # it was taken back once already
        (serving(4, 2), "2-b"),  # taking it back was cut off
    ],
)
def test_the_default_target_is_the_release_before_the_live_one(live: dict[str, int], expected: str) -> None:
    assert target(releases(published("1-a", "2-b", "3-c"), live), "", live).name == expected


def test_a_release_that_was_only_on_trial_is_a_target_only_by_name() -> None:
    live = serving(4, 3)
    known = releases(published("1-a", "2-b-trial", "3-c"), live)

    assert target(known, "", live).name == "1-a"
    assert target(known, "2-b-trial", live).name == "2-b-trial"


def test_a_release_can_be_selected_by_name() -> None:
    live = serving(4, 3)
    assert target(releases(published("1-a", "2-b", "3-c"), live), "1-a", live).name == "1-a"


def test_an_impossible_target_is_refused_with_the_existing_releases() -> None:
    live = serving(3, 2)
    known = releases(published("1-a", "2-b"), live)

    with pytest.raises(Rejected, match="--to 9-z: no such release; releases: 2-b, 1-a"):
        target(known, "9-z", live)
    with pytest.raises(Rejected, match="no release before the live one"):
        target(releases(published("1-a"), serving(2, 1)), "", serving(2, 1))
    with pytest.raises(Rejected, match="1-a has no version of nodesmith-private-lifecycle"):
        target(known, "", {**live, "nodesmith-private-lifecycle": 1})


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two releases of two functions, and an unrelated function."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    with strict_aws():
        functions = client("lambda")
        for name in (*BOTH, "others"):
            _create(functions, name)
        for release in ("1-a", "2-b"):
            for name in BOTH:
                _publish(functions, name, release)
        yield functions


def _create(functions: Any, name: str) -> None:
    code = io.BytesIO()
    with zipfile.ZipFile(code, "w") as archive:
        archive.writestr("handler.py", "")
    role = boto3.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    functions.create_function(
        FunctionName=name,
        Runtime="python3.13",
        Role=role,
        Handler="handler.handler",
        Code={"ZipFile": code.getvalue()},
    )


def _publish(functions: Any, name: str, release: str) -> None:
    """Deploy a release of a function as CloudFormation does: its configuration, a version, the alias."""
    functions.update_function_configuration(
        FunctionName=name, Environment={"Variables": {"RELEASE": release}}
    )
    version = functions.publish_version(FunctionName=name)["Version"]
    if release == "1-a":
        functions.create_alias(FunctionName=name, Name="live", FunctionVersion=version)
    else:
        functions.update_alias(FunctionName=name, Name="live", FunctionVersion=version)


def live(functions: Any) -> list[str]:
    return [functions.get_alias(FunctionName=name, Name="live")["FunctionVersion"] for name in BOTH]


def run(**options: Any) -> int:
    given = {"to": "", "listed": False, "dry_run": False, "is_asked": False, "output": "table", **options}
    return rollback(Functions(client), **given)


def test_all_functions_are_rolled_back_and_others_are_left_alone(
    aws: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    before = live(aws)

    assert run() == 0

    assert [int(old) - int(new) for old, new in zip(before, live(aws), strict=True)] == [1, 1]
    said = capsys.readouterr().out
    assert "2 functions now run release 1-a" in said
    assert "others" not in said


def test_an_interrupted_rollback_is_continued(aws: Any) -> None:
    first = aws.list_versions_by_function(FunctionName=BOTH[1])["Versions"][1]["Version"]
    aws.update_alias(FunctionName=BOTH[1], Name="live", FunctionVersion=first)

    run()

    assert Functions(client).live()[BOTH[1]] == int(first)
    with pytest.raises(Rejected, match="no release before"):
        run()


def test_a_dry_run_says_what_would_be_switched_and_switches_nothing(
    aws: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    before = live(aws)

    run(dry_run=True, output="json")

    reported = json.loads(capsys.readouterr().out)
    assert (reported["release"], reported["state"], sorted(reported["functions"])) == (
        "1-a",
        "planned",
        list(BOTH),
    )
    assert live(aws) == before


def test_nothing_is_switched_without_confirmation(aws: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = live(aws)
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: False)

    with pytest.raises(typer.Abort):
        run(is_asked=True)
    assert live(aws) == before


def test_releases_are_listed_with_the_live_one(aws: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run(listed=True)

    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [(line[0], line[-1] == "all") for line in lines] == [("2-b", True), ("1-a", False)]
    del aws


@pytest.mark.usefixtures("aws")
def test_a_region_without_nodesmith_is_refused() -> None:
    def elsewhere(service: str) -> Any:
        return boto3.client(service, region_name="eu-north-1" if REGION != "eu-north-1" else "eu-west-3")

    with pytest.raises(Rejected, match="nodesmith is not deployed in this region"):
        rollback(Functions(elsewhere), to="", listed=False, dry_run=False, is_asked=False, output="table")
