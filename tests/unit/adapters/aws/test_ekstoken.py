"""Bearer tokens for EKS."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.credentials import Credentials
from botocore.session import get_session

from nodesmith.adapters.aws.eks import EksToken, dns_suffix, eks_token
from tests.fakes.sts import Process

CREDENTIALS = Credentials("AKIDEXAMPLE", "s3cr3t", "session")


def url_of(token: str) -> str:
    prefix, _, body = token.partition(".")
    assert prefix == "k8s-aws-v1"
    assert "=" not in body
    return base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode()


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("eu-west-1", "sts.eu-west-1.amazonaws.com"),
        ("cn-north-1", "sts.cn-north-1.amazonaws.com.cn"),
        ("us-gov-west-1", "sts.us-gov-west-1.amazonaws.com"),
        ("eusc-de-east-1", "sts.eusc-de-east-1.amazonaws.eu"),
    ],
)
def test_a_token_is_a_presigned_request_to_the_regions_sts_that_signs_the_cluster_name(
    region: str, host: str
) -> None:
    url = urlsplit(url_of(eks_token(CREDENTIALS, "east", region)))
    query = {name: values[0] for name, values in parse_qs(url.query).items()}
    assert (url.scheme, url.netloc, query["Action"]) == ("https", host, "GetCallerIdentity")
    assert query["X-Amz-SignedHeaders"] == "host;x-k8s-aws-id"
    assert query["X-Amz-Credential"].startswith("AKIDEXAMPLE/")
    assert query["X-Amz-Security-Token"] == "session"
    assert "s3cr3t" not in url.query


def test_a_token_is_reused_for_fourteen_minutes() -> None:
    now = datetime(2026, 11, 21, 8, tzinfo=UTC)
    signed: list[str] = []

    class Counted(Credentials):
        def get_frozen_credentials(self):  # type: ignore[no-untyped-def]
            signed.append("once")
            return super().get_frozen_credentials()

    token = EksToken(Counted("AKID", "s3cr3t"), "east", "us-east-1", lambda: now)
    first = token()
    now += timedelta(minutes=13, seconds=59)
    assert (token(), len(signed)) == (first, 1)
    now += timedelta(seconds=1)
    token()
    assert len(signed) == 2


def test_every_region_of_botocore_has_its_domain() -> None:
    for partition in get_session().get_component("data_loader").load_data("partitions")["partitions"]:
        regions = [name for name in partition["regions"] if not name.endswith("-global")]
        domain = partition["outputs"]["dnsSuffix"]
        assert {dns_suffix(region) for region in regions} == {domain}


def test_a_token_is_signed_anew_if_its_session_ends_before_it_would() -> None:
    process = Process()
    credentials = process.session("east").get_credentials()
    assert credentials is not None
    token = EksToken(credentials, "east", "us-east-1", lambda: process.now)
    token()
    process.sts.is_away = True
    process.now += timedelta(minutes=48)
    assert "Credential=key-1" in url_of(token())
    process.sts.is_away = False
    process.now += timedelta(seconds=1)
    assert "Credential=key-2" in url_of(token())
