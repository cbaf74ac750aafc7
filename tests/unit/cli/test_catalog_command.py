from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Never

import pytest
import typer
import yaml
from typer.testing import CliRunner, Result

from nodesmith.errors import Rejected, Transient
from nodesmith_cli.commands.catalog import catalog_command

_ON_DEMAND = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
_SIZE = {
    "architecture": "amd64",
    "operatingSystems": ["linux"],
    "resources": {"cpu": "2", "memory": "8Gi", "pods": "110", "ephemeral-storage": "20Gi"},
}
app = typer.Typer()
app.command()(catalog_command)


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_names_in_a_file_control_no_terminal(tmp_path: Path) -> None:
    hostile = "m5\x1b]0;title\x07.large"
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-east-1a\x1b[31m"]}
    offering = {"Price": 0.1, "Available": True, "Requirements": [zone, _ON_DEMAND]}
    file = tmp_path / "types.json"
    file.write_text(json.dumps([{"name": hostile, "offerings": [offering], **_SIZE}]))
    result = run("--source", str(file))
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    assert r"m5\x1b]0;title" in result.stdout


def names(*arguments: str) -> list[str]:
    return [one["name"] for one in json.loads(run(*arguments, "-o", "json").stdout)]


def test_json_lists_every_type_of_the_region() -> None:
    assert len(names()) == 1372


def test_types_are_printed_as_yaml_or_selected_by_jsonpath_as_well() -> None:
    listed = json.loads(run("m5.large", "-o", "json").stdout)
    assert yaml.safe_load(run("m5.large", "-o", "yaml").stdout) == listed
    assert run("m5.large", "c5.large", "-o", "jsonpath={[*].name}").stdout.split() == ["c5.large", "m5.large"]


def test_types_are_chosen_by_pattern_architecture_zone_and_capacity_type() -> None:
    assert names("m7g.*", "m7i.large", "--arch", "amd64") == ["m7i.large"]
    only = run("m5.large", "--zone", "us-east-1b", "--capacity-type", "spot", "-o", "json")
    assert [(o["zone"], o["capacityType"]) for o in json.loads(only.stdout)[0]["offerings"]] == [
        ("us-east-1b", "spot")
    ]


def test_types_are_sorted_by_their_lowest_price_when_asked() -> None:
    assert names("m5.*large", "--sort", "price")[:3] == ["m5.large", "m5.xlarge", "m5.2xlarge"]


def test_the_table_marks_estimated_prices_and_explains_the_mark() -> None:
    shown = run("m5.large", "r9g.large").stdout
    (m5,) = (line.split() for line in shown.splitlines() if line.startswith("m5.large"))
    (r9g,) = (line.split() for line in shown.splitlines() if line.startswith("r9g.large"))
    assert m5 == ["m5.large", "amd64", "2", "8", "GiB", "29", "us-east-1[abcdf]", "0.0960", "~0.0336"]
    assert r9g[-2:] == ["-", "-"]
    assert "~ estimated from" in shown


def test_another_regions_prices_are_estimates_and_chinas_are_in_cny() -> None:
    assert "~0.0960" in run("m5.large", "--region", "eu-west-1").stdout
    assert "CNY/H" in run("m5.large", "--region", "cn-north-1").stdout


def test_faults_of_a_file_go_to_standard_error_and_the_rest_is_listed(tmp_path: Path) -> None:
    file = tmp_path / "types.json"
    listed = json.loads(run("m5.large", "c5.large", "-o", "json").stdout)
    del listed[0]["offerings"][0]["priceHourly"]
    file.write_text(json.dumps(listed))
    result = run("--source", str(file), "-o", "json")
    assert [one["name"] for one in json.loads(result.stdout)] == ["c5.large", "m5.large"]
    assert "InstanceType/c5.large: offerings[0].priceHourly is missing" in result.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"foo: [", "not JSON"),
        (b"{}", "write a JSON list of instance types"),
        (b'[{"name": "m5.large"}]', "no usable instance type"),
        (b"\x1f\x8b no more", "are not gzip"),
        (gzip.compress(b"{}"), "catalogue: format is None"),
    ],
)
def test_a_file_that_is_no_catalogue_is_named(content: bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / "types.json"
    file.write_bytes(content)
    with pytest.raises(Rejected, match=rf"^--source {file}: .*{said}"):
        run("--source", str(file))


class QuietMarket:
    """A market that only provides spot prices."""

    def __getattr__(self, call: str) -> Callable[[], Never]:
        def refuse() -> Never:
            raise Transient(f"{call}: not today")

        return refuse

    def prices_of(self, sold: str, places: Iterable[str]) -> Never:
        raise Transient(f"prices of {sold} in {', '.join(places)}: not today")

    def spot_prices(self, now: datetime, *, windows: bool = False) -> Mapping[tuple[str, str], float]:
        assert now.tzinfo is not None
        return {("m5.large", "us-east-1a"): 0.1023 if windows else 0.0123}


class SilentMarket(QuietMarket):
    """A market that provides nothing."""

    def spot_prices(self, now: datetime, *, windows: bool = False) -> Never:
        raise Transient(f"spot prices at {now} (windows: {windows}): not today")


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")


@pytest.mark.usefixtures("credentials")
def test_if_all_aws_calls_fail_the_first_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodesmith.adapters.catalog.pricing.aws_market", lambda _: SilentMarket())
    with pytest.raises(Transient, match=r"^--source aws: facts: not today$"):
        run("m5.large", "--source", "aws")


def test_without_credentials_no_aws_call_is_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "nowhere"))
    with pytest.raises(
        Rejected, match=r"^no AWS credentials found: log in \(aws sso login\), or set AWS_PROFILE$"
    ):
        run("m5.large", "--source", "aws")


@pytest.mark.usefixtures("credentials")
def test_failed_aws_calls_fall_back_to_embedded_data_with_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nodesmith.adapters.catalog.pricing.aws_market", lambda _: QuietMarket())
    result = run("m5.large", "--source", "aws", "--zone", "us-east-1a", "-o", "json")
    offerings = {o["capacityType"]: o for o in json.loads(result.stdout)[0]["offerings"]}
    assert (offerings["spot"]["priceHourly"], offerings["spot"]["estimated"]) == (0.0123, False)
    assert (offerings["on-demand"]["priceHourly"], offerings["on-demand"]["estimated"]) == (0.096, False)
    assert "on_demand_prices: not today" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--arch", "amd46"], "--arch: unknown value 'amd46', did you mean 'amd64'"),
        (["--capacity-type", "sport"], "did you mean 'spot'"),
        (["--source", "missing.json"], "--source missing.json: No such file"),
        (["zz*"], "'zz\\*': no such instance type in us-east-1"),
        (["m5.large", "m5.lage"], "'m5.lage': no such instance type in us-east-1, did you mean 'm5.large'"),
        (["m5.large", "--arch", "arm64"], "no instance type in us-east-1 matches"),
        (["--zone", "us-east-1z"], "--zone us-east-1z: no such zone in us-east-1, did you mean 'us-east-1"),
        (["--zone", "nowhere"], "--zone nowhere: no such zone in us-east-1; zones: us-east-1a, us-east-1b"),
        (["--region", "us-east-9"], "'us-east-9' is not in the embedded catalogue"),
        (["--region", "moon"], "'moon' is not in the embedded catalogue; known regions: af-south-1, "),
    ],
)
def test_invalid_options_are_refused_with_a_hint(arguments: list[str], said: str) -> None:
    with pytest.raises(Rejected, match=said):
        run(*arguments)
