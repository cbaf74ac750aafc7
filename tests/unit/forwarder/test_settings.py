"""The forwarder's settings, and the messages for wrong ones."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nodesmith.errors import Rejected
from nodesmith_forwarder.__main__ import main
from nodesmith_forwarder.settings import read_forwarder_settings
from nodesmith_forwarder.windows import Pace

GOOD = {
    "CLUSTER_NAME": "east",
    "AWS_REGION": "us-east-1",
    "BUCKET_NAME": "snapshots",
    "TABLE_NAME": "nodesmith",
}


def test_the_defaults_are_karpenters() -> None:
    settings = read_forwarder_settings(GOOD)
    assert settings.pace == Pace(timedelta(seconds=1), timedelta(seconds=10))
    assert settings.reached_from == ""
    assert (settings.health_port, settings.log_level) == (8081, "INFO")


def test_the_vpc_from_which_functions_reach_the_api_server_is_set_by_name() -> None:
    assert read_forwarder_settings({**GOOD, "REACHED_FROM": "private"}).reached_from == "private"


@pytest.mark.parametrize(("text", "seconds"), [("2s", 2), ("500ms", 0.5), ("1.5s", 1.5), ("1m", 60)])
def test_durations_have_karpenters_format(text: str, seconds: float) -> None:
    settings = read_forwarder_settings({**GOOD, "BATCH_IDLE_DURATION": text})
    assert settings.pace.idle == timedelta(seconds=seconds)


def test_every_fault_names_the_value_and_what_is_expected() -> None:
    wrong = {
        **GOOD,
        "BUCKET_NAME": "",
        "BATCH_MAX_DURATION": "soon",
        "HEALTH_PROBE_PORT": "0",
        "LOG_LEVEL": "loud",
    }
    with pytest.raises(Rejected) as caught:
        read_forwarder_settings(wrong)
    text = str(caught.value)
    assert "BUCKET_NAME is not set (the S3 bucket of snapshots)" in text
    assert "BATCH_MAX_DURATION='soon': must be a duration such as 1s" in text
    assert "HEALTH_PROBE_PORT='0': must be a port from 1 to 65535" in text
    assert "LOG_LEVEL='loud': must be one of debug, info, error" in text


def test_the_program_names_missing_settings_and_exits_with_status_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in GOOD:
        monkeypatch.delenv(name, raising=False)
    assert main() == 2
    assert "CLUSTER_NAME is not set" in capsys.readouterr().err
