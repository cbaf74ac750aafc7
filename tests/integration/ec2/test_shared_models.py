"""Sessions that share AWS's API models are isolated from changes that another session's client makes."""

from __future__ import annotations

from typing import Any

from botocore.session import Session

from nodesmith_local.functions.sharedclients import models_are_shared
from tests.aws.account import REGION, strict_aws


def test_an_s3_client_does_not_change_the_paths_of_other_sessions() -> None:
    with models_are_shared():
        first, second = Session(), Session()
        models = [session.get_service_model("s3") for session in (first, second)]
        client: Any = first.create_client(
            "s3", region_name=REGION, aws_access_key_id="none", aws_secret_access_key="none"
        )

    with strict_aws():
        client.create_bucket(Bucket="snapshots")

    assert [model.operation_model("CreateBucket").http["requestUri"] for model in models] == [
        "",
        "/{Bucket}",
    ]
