"""Carrying out the actions of connect. Each is idempotent: a resource that already exists is not an error."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, assert_never
from urllib.parse import quote

from botocore import xform_name
from botocore.exceptions import ClientError

from nodesmith.adapters.aws.calls import error_code, error_message
from nodesmith.adapters.ownedresources import bare_role_name
from nodesmith.errors import Rejected, Transient
from nodesmith.registration import parameter_name
from nodesmith_cli.access.awssession import Client, asking
from nodesmith_cli.connecting.applying import Applier, path_of
from nodesmith_cli.connecting.manifests import CRD, FORWARDER, NAMESPACE
from nodesmith_cli.connecting.observed import DISCOVERY_TAG, MADE_TAG, Account
from nodesmith_cli.connecting.reading.cluster import PODS, forwarders_pods
from nodesmith_cli.connecting.request import NODE_POLICIES
from nodesmith_cli.connecting.steps import actions
from nodesmith_cli.connecting.steps.connect import policy_arn
from nodesmith_formats.kubernetes.objects import is_true

TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    ],
}
_THERE = frozenset("ResourceInUseException EntityAlreadyExists ParameterAlreadyExists AlreadyExists".split())
_TAKEN = "has been taken"
"""What IAM says, as InvalidInput, of a service-linked role that exists."""
_UNKNOWN_ROLE = "InvalidParameterException"
_MODE_SECONDS, _IAM_SECONDS, _CRD_SECONDS, _POLL_SECONDS = 600.0, 60.0, 60.0, 5.0


class ActionRunner:
    """Carries out actions on one account and cluster. `sleep` waits for a number of seconds."""

    def __init__(
        self,
        client: Client,
        server: Applier,
        account: Account,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client, self._server, self._account, self._sleep = client, server, account, sleep
        self._name = account.cluster.name
        self._tags = {MADE_TAG: self._name}
        self._calls = Calls(client, sleep)

    def carry_out(self, action: actions.Action) -> None:  # noqa: C901 (a case for each action)
        """Carry out one action. Raises Transient, Rejected (including Denied), Conflict."""
        match action:
            case actions.SetMode():
                self._set_mode()
            case actions.InstallAgent():
                self._calls.call(
                    "eks",
                    "CreateAddon",
                    self._name,
                    clusterName=self._name,
                    addonName=actions.AGENT,
                    tags=self._tags,
                )
            case actions.MakeSpotRole():
                self._calls.call(
                    "iam", "CreateServiceLinkedRole", "spot", AWSServiceName="spot.amazonaws.com"
                )
            case actions.Tag(ids):
                tags = {DISCOVERY_TAG: self._name, MADE_TAG: self._name}
                pairs = [{"Key": key, "Value": value} for key, value in tags.items()]
                self._calls.call("ec2", "CreateTags", ", ".join(ids), Resources=list(ids), Tags=pairs)
            case actions.MakeNodeRole(name):
                self._make_node_role(name)
            case actions.AttachPolicies(role, policies):
                self._attach(role, policies)
            case actions.MakeEntry(principal, kind, username):
                self._make_entry(principal, kind, username)
            case actions.ChangeEntry(principal, username):
                entry = {"clusterName": self._name, "principalArn": principal}
                self._calls.call(
                    "eks", "UpdateAccessEntry", principal, **entry, username=username, kubernetesGroups=[]
                )
            case actions.ReplaceEntry(principal, kind, username):
                entry = {"clusterName": self._name, "principalArn": principal}
                self._calls.call("eks", "DeleteAccessEntry", principal, **entry)
                self._make_entry(principal, kind, username)
            case actions.Associate(role, id_):
                self._associate(role, id_)
            case actions.Register(text, is_new, observed):
                self._register(text, is_new=is_new, observed=observed)
            case actions.Unregister():
                self._unregister()
            case actions.Apply(manifests):
                apply_all(self._server, manifests, self._sleep)
            case actions.RestartForwarder():
                replace_pods(self._server)
            case _:
                assert_never(action)

    def _set_mode(self) -> None:
        mode = "API_AND_CONFIG_MAP"
        self._calls.call(
            "eks",
            "UpdateClusterConfig",
            self._name,
            name=self._name,
            accessConfig={"authenticationMode": mode},
        )
        waited = 0.0
        while True:
            with asking("eks:DescribeCluster", f"cluster/{self._name}"):
                described = self._client("eks").describe_cluster(name=self._name)["cluster"]
            if (
                described["status"] == "ACTIVE"
                and described["accessConfig"]["authenticationMode"] != "CONFIG_MAP"
            ):
                return
            if waited >= _MODE_SECONDS:
                raise Transient(
                    f"cluster {self._name}: EKS is still switching the authentication mode: run the command again"
                )
            self._sleep(_POLL_SECONDS)
            waited += _POLL_SECONDS

    def _make_node_role(self, name: str) -> None:
        description = f"nodes of the EKS cluster {self._name}"
        self._calls.call(
            "iam",
            "CreateRole",
            f"role/{name}",
            RoleName=name,
            AssumeRolePolicyDocument=json.dumps(TRUST),
            Description=description,
            Tags=[{"Key": key, "Value": value} for key, value in self._tags.items()],
        )
        self._attach(name, [policy_arn(self._account, policy) for policy in NODE_POLICIES])

    def _attach(self, role: str, policies: Any) -> None:
        for policy in policies:
            self._calls.call(
                "iam", "AttachRolePolicy", f"role/{role}", RoleName=bare_role_name(role), PolicyArn=policy
            )

    def _make_entry(self, principal: str, kind: str, username: str) -> None:
        entry: dict[str, Any] = {
            "clusterName": self._name,
            "principalArn": principal,
            "type": kind,
            "tags": self._tags,
        }
        if username:
            entry["username"] = username
        self._calls.call_until_role_exists("eks", "CreateAccessEntry", principal, **entry)

    def _associate(self, role: str, id_: str) -> None:
        if id_:
            self._calls.call_until_role_exists(
                "eks",
                "UpdatePodIdentityAssociation",
                id_,
                clusterName=self._name,
                associationId=id_,
                roleArn=role,
            )
            return
        self._calls.call_until_role_exists(
            "eks",
            "CreatePodIdentityAssociation",
            f"{NAMESPACE}/{FORWARDER}",
            clusterName=self._name,
            namespace=NAMESPACE,
            serviceAccount=FORWARDER,
            roleArn=role,
            tags=self._tags,
        )

    def _unregister(self) -> None:
        name = parameter_name(self._name, observed=True)
        self._calls.call("ssm", "DeleteParameter", f"parameter{name}", Name=name)

    def _register(self, text: str, *, is_new: bool, observed: bool) -> None:
        name = parameter_name(self._name, observed=observed)
        written: dict[str, Any] = {"Name": name, "Value": text, "Type": "String"}
        if is_new:
            written["Tags"] = [{"Key": key, "Value": value} for key, value in self._tags.items()]
        else:
            written["Overwrite"] = True
        if self._calls.call("ssm", "PutParameter", f"parameter{name}", **written) is None:
            with asking("ssm:GetParameter", f"parameter{name}"):
                there = self._client("ssm").get_parameter(Name=name)["Parameter"]["Value"]
            if there != text:
                raise Rejected(f"{name}: another run has registered the cluster: run the command again")


class Calls:
    """Makes calls with the caller's clients. `sleep` waits for a number of seconds."""

    def __init__(self, client: Client, sleep: Callable[[float], None]) -> None:
        self._client, self._sleep = client, sleep

    def call(self, service: str, operation: str, resource: str, **parameters: Any) -> Any:
        """Make a call. Returns None if the resource already exists. Raises Denied, Rejected, Transient."""
        with asking(f"{service}:{operation}", resource), _fine_if_there():
            return self._method(service, operation)(**parameters)
        return None

    def call_until_role_exists(self, service: str, operation: str, resource: str, **parameters: Any) -> None:
        """Make a call, and retry while EKS does not know a role that IAM has just created."""
        method, waited = self._method(service, operation), 0.0
        while True:
            with asking(f"{service}:{operation}", resource), _fine_if_there():
                try:
                    method(**parameters)
                except ClientError as error:
                    if error_code(error) != _UNKNOWN_ROLE or waited >= _IAM_SECONDS:
                        raise
                    self._sleep(_POLL_SECONDS)
                    waited += _POLL_SECONDS
                    continue
            return

    def _method(self, service: str, operation: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._client(service), xform_name(operation))
        return method


@contextmanager
def _fine_if_there() -> Iterator[None]:
    """Ignore the errors of AWS for a resource that already exists."""
    try:
        yield
    except ClientError as error:
        is_taken = error_code(error) == "InvalidInput" and _TAKEN in error_message(error)
        if error_code(error) not in _THERE and not is_taken:
            raise


def apply_all(
    server: Applier, manifests: Sequence[Mapping[str, Any]], sleep: Callable[[float], None]
) -> None:
    """Apply objects in order, and wait until their CRDs are served. Raises Transient, Rejected, Conflict."""
    for manifest in manifests:
        server.apply(manifest)
    for manifest in manifests:
        if manifest["kind"] == CRD:
            _wait_until_served(server, manifest, sleep)


def replace_pods(server: Applier) -> None:
    """Delete the forwarder's pods, so that its Deployment creates new ones without a change to its template."""
    for pod in forwarders_pods(server):
        metadata = pod["metadata"]
        server.delete(f"{PODS}/{quote(metadata['name'], safe='')}", metadata.get("uid") or "")


def _wait_until_served(server: Applier, crd: Mapping[str, Any], sleep: Callable[[float], None]) -> None:
    waited = 0.0
    while not is_true(server.get(path_of(crd)) or {}, "Established"):
        if waited >= _CRD_SECONDS:
            name = crd["metadata"]["name"]
            raise Transient(f"{CRD}/{name}: the API server does not serve it yet: run the command again")
        sleep(1.0)
        waited += 1.0
