"""Carrying out the actions of disconnect. Each is idempotent: a resource that is already gone is not an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, assert_never

from botocore.exceptions import ClientError

from nodesmith.adapters.aws.calls import error_code
from nodesmith.adapters.aws.registrations import LAST_USE
from nodesmith.registration import parameter_name
from nodesmith_cli.access.awssession import Client, asking
from nodesmith_cli.access.ledger import TABLE
from nodesmith_cli.connecting.observed import DISCOVERY_TAG, MADE_TAG
from nodesmith_cli.connecting.reading.leftovers import partition_queries, prefix
from nodesmith_cli.connecting.steps import actions
from nodesmith_cli.connecting.steps.actions import AGENT

_GONE = frozenset(
    "ResourceNotFoundException NoSuchEntity ParameterNotFound InvalidLaunchTemplateId.NotFound "
    "InvalidSubnetID.NotFound InvalidGroup.NotFound".split()
)
_MOST_OBJECTS, _MOST_ITEMS = 1000, 25
LAST_RUN_SECONDS = LAST_USE.total_seconds() + 15
"""After this time, every function has noticed that the cluster is no longer registered, and its last run is over."""


class Remover:
    """Removes one cluster's resources in AWS. `bucket` is empty if the region's stack is gone."""

    def __init__(self, client: Client, cluster: str, bucket: str, sleep: Callable[[float], None]) -> None:
        self._client, self._name, self._bucket, self._sleep = client, cluster, bucket, sleep

    def carry_out(self, action: actions.RemoveAction) -> None:  # noqa: C901 (a case for each action)
        """Carry out one action. Raises Transient, Rejected (including Denied)."""
        match action:
            case actions.DeleteRegistration():
                for observed in (False, True):
                    name = parameter_name(self._name, observed=observed)
                    self._call("ssm", "delete_parameter", f"parameter{name}", Name=name)
                self._sleep(LAST_RUN_SECONDS)
            case actions.DeleteEntries(principals):
                for principal in principals:
                    entry = {"clusterName": self._name, "principalArn": principal}
                    self._call("eks", "delete_access_entry", principal, **entry)
            case actions.DeleteAssociation(id_):
                association = {"clusterName": self._name, "associationId": id_}
                self._call("eks", "delete_pod_identity_association", id_, **association)
            case actions.DeleteAgent():
                self._call("eks", "delete_addon", AGENT, clusterName=self._name, addonName=AGENT)
            case actions.Untag(ids):
                tags = [{"Key": DISCOVERY_TAG, "Value": self._name}, {"Key": MADE_TAG, "Value": self._name}]
                self._call("ec2", "delete_tags", ", ".join(ids), Resources=list(ids), Tags=tags)
            case actions.DeleteTemplates(ids):
                for id_ in ids:
                    self._call("ec2", "delete_launch_template", id_, LaunchTemplateId=id_)
            case actions.DeleteProfiles(profiles):
                self._delete_profiles(profiles)
            case actions.DeleteObjects():
                self._delete_objects()
            case actions.DeleteItems():
                self._delete_items()
            case actions.DeleteNodeRole(name, policies):
                for policy in policies:
                    self._call("iam", "detach_role_policy", f"role/{name}", RoleName=name, PolicyArn=policy)
                self._call("iam", "delete_role", f"role/{name}", RoleName=name)
            case _:
                assert_never(action)

    def _delete_profiles(self, profiles: Mapping[str, tuple[str, ...]]) -> None:
        for name, roles in profiles.items():
            profile = {"InstanceProfileName": name}
            for role in roles:
                self._call("iam", "remove_role_from_instance_profile", name, **profile, RoleName=role)
            self._call("iam", "delete_instance_profile", name, **profile)

    def _delete_objects(self) -> None:
        with asking("s3:ListBucketVersions", self._bucket):
            paginator = self._client("s3").get_paginator("list_object_versions")
            pages = list(paginator.paginate(Bucket=self._bucket, Prefix=prefix(self._name)))
        versions = [
            {"Key": version["Key"], "VersionId": version["VersionId"]}
            for page in pages
            for version in (*page.get("Versions", ()), *page.get("DeleteMarkers", ()))
        ]
        for some in _batches(versions, _MOST_OBJECTS):
            self._call(
                "s3",
                "delete_objects",
                self._bucket,
                Bucket=self._bucket,
                Delete={"Objects": some, "Quiet": True},
            )

    def _delete_items(self) -> None:
        with asking("dynamodb:Query", f"table/{TABLE}"):
            paginator = self._client("dynamodb").get_paginator("query")
            queries = [{**query, "ProjectionExpression": "pk, sk"} for query in partition_queries(self._name)]
            pages = [page for query in queries for page in paginator.paginate(**query)]
        requests = [{"DeleteRequest": {"Key": item}} for page in pages for item in page["Items"]]
        for some in _batches(requests, _MOST_ITEMS):
            left: Any = {TABLE: some}
            while left:
                answer = self._call("dynamodb", "batch_write_item", f"table/{TABLE}", RequestItems=left)
                left = (answer or {}).get("UnprocessedItems")

    def _call(self, service: str, method: str, resource: str, /, **parameters: Any) -> Any:
        action = f"{service}:{''.join(word.capitalize() for word in method.split('_'))}"
        with asking(action, resource), _fine_if_gone():
            return getattr(self._client(service), method)(**parameters)
        return None


def _batches(items: list[Any], size: int) -> Iterator[list[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


@contextmanager
def _fine_if_gone() -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        if error_code(error) not in _GONE:
            raise
