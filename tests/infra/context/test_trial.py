"""A deployment with a canary: new code serves some clusters, and the current versions keep serving the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, NoCredentialsError

from infra.application import application
from infra.functions.concerns import function_names
from infra.functions.trial import read_canary
from nodesmith.registration import Trial, read_trial
from tests.infra.deployment import ACCOUNT, PLAIN_REGION, ROOT, code_on_empty_layers
from tests.infra.templates import Template

ALL = function_names(())
TRIED = [name for name in ALL if name.rpartition("-")[2] not in ("catalog", "dispatch", "routing")]


class Deployed:
    """Lambda, reduced to the query for the version that serves."""

    def __init__(self, *functions: str, error: Exception | None = None) -> None:
        self._functions, self._error = functions, error

    def __call__(self, service: str, region: str) -> Deployed:
        assert (service, region) == ("lambda", PLAIN_REGION)
        return self

    def get_alias(self, **asked: str) -> dict[str, str]:
        assert asked["Name"] == "live"
        if self._error is not None:
            raise self._error
        if asked["FunctionName"] not in self._functions:
            raise ClientError({"Error": {"Code": "ResourceNotFoundException"}}, "GetAlias")
        return {"FunctionVersion": "7"}


def synthesised(folder: Path, canary: Any, deployed: Deployed) -> Template:
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    code, output = code_on_empty_layers(folder / "layers"), folder / "out"
    application({**context, "canary": canary}, code, output, PLAIN_REGION, deployed).synth()
    return Template.read(output / f"nodesmith-{PLAIN_REGION}.template.json")


def versions(template: Template, alias: str) -> dict[str, str]:
    """Return the target of an alias of each function: a version's number, or `new` for the new version."""
    functions = {id_: each["FunctionName"] for id_, each in template.of_type("Lambda::Function").items()}
    return {
        functions[each["FunctionName"]]: each["FunctionVersion"]
        if each["FunctionVersion"].isdigit()
        else "new"
        for each in template.of_type("Lambda::Alias").values()
        if each["Name"] == alias
    }


def test_the_current_versions_keep_serving_while_the_new_ones_are_on_trial(tmp_path: Path) -> None:
    template = synthesised(tmp_path, "dev, staging", Deployed(*ALL))

    assert versions(template, "live") == dict.fromkeys(ALL, "7")
    assert versions(template, "canary") == dict.fromkeys(TRIED, "new")
    parameter = template.only("SSM::Parameter")
    release = template.function("dispatch")["Environment"]["Variables"]["RELEASE"]
    assert release.endswith("-trial")
    assert parameter["Name"] == "/nodesmith/canary"
    assert read_trial(parameter["Value"]) == Trial(frozenset({"dev", "staging"}), release)


def test_events_for_the_release_on_trial_are_kept_like_all_others(tmp_path: Path) -> None:
    template = synthesised(tmp_path, "dev", Deployed(*ALL))
    kept: dict[str, list[Any]] = {}
    for each in template.of_type("Lambda::EventInvokeConfig").values():
        kept.setdefault(each.pop("Qualifier"), []).append(each)
    assert len(kept["canary"]) == len(TRIED)
    assert all(each in kept["live"] for each in kept["canary"])


def test_a_new_function_serves_with_its_new_version(tmp_path: Path) -> None:
    known = [name for name in ALL if name != "nodesmith-repair"]
    assert versions(synthesised(tmp_path, "dev", Deployed(*known)), "live") == {
        **dict.fromkeys(known, "7"),
        "nodesmith-repair": "new",
    }


def test_without_a_canary_nothing_is_looked_up_and_new_versions_serve(tmp_path: Path) -> None:
    template = synthesised(tmp_path, None, Deployed(error=AssertionError("must not be queried")))
    assert not template.function("dispatch")["Environment"]["Variables"]["RELEASE"].endswith("-trial")
    assert versions(template, "live") == dict.fromkeys(ALL, "new")
    assert versions(template, "canary") == {}


@pytest.mark.parametrize(
    ("deployed", "said"),
    [
        (Deployed(), f"canary: no release is deployed in {PLAIN_REGION}"),
        (
            Deployed(error=NoCredentialsError()),
            f"canary: cannot look up which versions serve in {PLAIN_REGION}",
        ),
    ],
)
def test_a_trial_without_a_deployed_release_is_refused(tmp_path: Path, deployed: Deployed, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        synthesised(tmp_path, "dev", deployed)


@pytest.mark.parametrize("raw", ["dev,", "a b", "x", 7, ["dev"], "../dev"])
def test_a_canary_that_names_no_clusters_is_refused_with_an_example(raw: Any) -> None:
    with pytest.raises(ValueError, match="-c canary=dev,staging"):
        read_canary(raw)


def test_a_function_hands_clusters_only_to_itself(plain: Template) -> None:
    for name in TRIED:
        role = plain.function(name.removeprefix("nodesmith-"))["Role"].removesuffix(".Arn")
        arns = {arn for each in plain.statements(role) for arn in each["Resource"] if arn.endswith(":canary")}
        assert arns == {f"arn:aws:lambda:{PLAIN_REGION}:{ACCOUNT}:function:{name}:canary"}
