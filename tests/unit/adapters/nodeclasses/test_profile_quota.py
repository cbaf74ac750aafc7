"""What IAM's LimitExceeded means: a profile that holds a role already, or the account's quota of profiles."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from nodesmith.adapters.ownedresources import ensure_profile, profile_name
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import Unresolved

NODECLASS = EC2NodeClass("default", role="node", uid="uid-1")
QUOTA = "Cannot exceed quota for InstanceProfilesPerAccount: 1000"


def failing(operation: str, code: str, message: str = "words") -> Any:
    def call(**_: object) -> None:
        raise ClientError({"Error": {"Code": code, "Message": message}}, operation)

    return call


def test_a_quota_of_profiles_that_is_used_up_is_the_reason() -> None:
    iam = SimpleNamespace(
        get_instance_profile=failing("GetInstanceProfile", "NoSuchEntity"),
        create_instance_profile=failing("CreateInstanceProfile", "LimitExceeded", QUOTA),
    )
    with pytest.raises(Unresolved, match=QUOTA) as caught:
        ensure_profile(iam, NODECLASS, "express", "us-east-1")
    assert caught.value.reason == "LimitExceeded"
    assert "spec.instanceProfile" in caught.value.message


def test_a_profile_that_another_run_has_just_filled_is_used() -> None:
    iam = SimpleNamespace(
        get_instance_profile=lambda **_: {"InstanceProfile": {"Roles": []}},
        add_role_to_instance_profile=failing("AddRoleToInstanceProfile", "LimitExceeded"),
    )
    name = profile_name(NODECLASS, "express", "us-east-1")
    assert ensure_profile(iam, NODECLASS, "express", "us-east-1") == name
