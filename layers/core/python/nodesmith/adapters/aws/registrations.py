"""The registrations of clusters in SSM Parameter Store, and sessions that do the work of one cluster and no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from botocore.credentials import CredentialProvider, CredentialResolver, DeferredRefreshableCredentials
from botocore.exceptions import ClientError
from botocore.session import Session, get_session

from nodesmith.adapters.aws.calls import SessionFailed, as_transient, error_code, error_message, rows
from nodesmith.errors import Rejected, Transient
from nodesmith.model.policies import LIMIT_PARAMETERS
from nodesmith.registration import (
    CANARY_PARAMETER,
    CLUSTER_NAME,
    CLUSTER_TAG,
    NO_TRIAL,
    OBSERVED_PARAMETERS,
    PARAMETERS,
    VPC_TAG,
    Registration,
    Trial,
    read_registration,
    read_trial,
)

READ_AGAIN, LAST_USE = timedelta(minutes=1), timedelta(minutes=2)
"""The age at which a function reads a value again, and the age from which it does not use it even if it cannot.

`nodesmith disconnect` waits for the latter, so that no function serves a cluster whose resources it deletes.
"""


class SsmRegistrations:
    """The registrations of a region's clusters. `client` returns a boto3 SSM client and is called on first use.

    `paths` are those that the caller may read. A cluster under several of them counts for the first.
    """

    def __init__(
        self, client: Callable[[], Any], clock: Callable[[], datetime], paths: Sequence[str] = (PARAMETERS,)
    ) -> None:
        self._client, self._clock, self._paths = client, clock, tuple(paths)
        self._read: dict[str, tuple[datetime, Registration]] = {}
        self._trial = NO_TRIAL

    def get(self, cluster: str) -> Registration:
        """Return a cluster's registration: at most a minute old, or two while Parameter Store is away.

        Raises Rejected if there is none or it cannot be read. Raises Transient.
        """
        now = self._clock()
        read_at, cached = self._read.get(cluster, (None, None))
        if cached is not None and read_at is not None and now - read_at < READ_AGAIN:
            return cached
        try:
            path, text = self._value(cluster)
            observed = path == OBSERVED_PARAMETERS
            registration = read_registration(cluster, text, of_any_release=True, observed=observed)
        except Transient:
            if cached is not None and read_at is not None and now - read_at < LAST_USE:
                return cached
            raise
        except Rejected:
            self._read.pop(cluster, None)
            raise
        self._read[cluster] = now, registration
        return registration

    def is_canary(self, cluster: str) -> bool:
        """Return whether the trial release serves a cluster.

        The answer is as old as the cluster's registration. Raises the same errors as `get`.
        """
        self.get(cluster)
        return cluster in self._trial.clusters

    def all(self) -> tuple[Sequence[Registration], Mapping[str, str]]:
        """Return all readable registrations, and by cluster the errors of the unreadable ones. Raises Transient."""
        registrations, faults = [], {}
        values: dict[str, tuple[str, str]] = {}
        for path in self._paths:
            with as_transient("ssm:GetParametersByPath"):
                for parameter in rows(self._client(), "get_parameters_by_path", "Parameters", Path=path):
                    values.setdefault(parameter["Name"].rpartition("/")[2], (path, parameter["Value"]))
        for cluster in sorted(values):
            path, text = values[cluster]
            observed = path == OBSERVED_PARAMETERS
            try:
                registrations.append(read_registration(cluster, text, of_any_release=True, observed=observed))
            except Rejected as error:
                faults[cluster] = str(error)
        return registrations, faults

    def _value(self, cluster: str) -> tuple[str, str]:
        """Return the path and the text of a cluster's registration."""
        unknown = f"cluster {cluster[:100]!r} is not registered: `nodesmith connect` registers it"
        if not CLUSTER_NAME.fullmatch(cluster):
            raise Rejected(unknown)
        with as_transient("ssm:GetParameters"):
            names = [*(f"{path}/{cluster}" for path in self._paths), CANARY_PARAMETER]
            answer = self._client().get_parameters(Names=names)
        values = {parameter["Name"]: str(parameter["Value"]) for parameter in answer["Parameters"]}
        self._trial = _trial(values.get(CANARY_PARAMETER))
        for path in self._paths:
            if f"{path}/{cluster}" in values:
                return path, values[f"{path}/{cluster}"]
        raise Rejected(unknown)


def _trial(text: str | None) -> Trial:
    """Read the trial. If it cannot be read, there is none, so the stable release serves all clusters."""
    try:
        return read_trial(text) if text is not None else NO_TRIAL
    except Rejected:
        return NO_TRIAL


class SsmLimits:
    """The SpendingLimits of a region, as users have written them. `client` returns a boto3 SSM client."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def all(self) -> Mapping[str, str]:
        """Return the values of all parameters, by the limit's name. Raises Transient."""
        with as_transient("ssm:GetParametersByPath"):
            found = rows(self._client(), "get_parameters_by_path", "Parameters", Path=LIMIT_PARAMETERS)
            return {p["Name"].rpartition("/")[2]: str(p["Value"]) for p in found}


class SsmTrials:
    """The Trials of a region. `client` returns a boto3 SSM client."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def current(self) -> Trial:
        """Return the trial in progress, or the one that ended last. Raises Transient."""
        with as_transient("ssm:GetParameters"):
            answer = self._client().get_parameters(Names=[CANARY_PARAMETER])
        return _trial(next((str(parameter["Value"]) for parameter in answer["Parameters"]), None))

    def keep(self, trial: Trial) -> None:
        """Store the trial. Functions follow it within a minute. Raises Transient."""
        with as_transient("ssm:PutParameter"):
            self._client().put_parameter(
                Name=CANARY_PARAMETER, Value=trial.to_json(), Type="String", Overwrite=True
            )


class _Provider(CredentialProvider):
    """Provides the credentials that it was made with."""

    METHOD = CANONICAL_NAME = "nodesmith-session"

    def __init__(self, credentials: DeferredRefreshableCredentials) -> None:
        super().__init__()
        self._credentials = credentials

    def load(self) -> DeferredRefreshableCredentials:
        return self._credentials


def cluster_session(
    base: Any, sts: Any, role_arn: str, registration: Registration, clock: Callable[[], datetime]
) -> Session:
    """Return a botocore session that assumes the role, tagged with a cluster and its VPC.

    `base` is the function's own session and `sts` its STS client, which all clusters share: creating and connecting a
    client takes at least 10 ms. Credentials are fetched on first use, and again 15 minutes before they expire by
    `clock`. The role session is named after the cluster: EKS makes that name part of the Kubernetes user name.
    """
    tags = {CLUSTER_TAG: registration.cluster, VPC_TAG: registration.vpc_id}
    request = {
        "RoleArn": role_arn,
        "RoleSessionName": registration.cluster,
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
    }
    credentials = DeferredRefreshableCredentials(
        method="assume-role",
        refresh_using=lambda: _credentials(_assumed(sts, request), role_arn),
        time_fetcher=clock,
    )
    session = get_session()
    session.register_component("credential_provider", CredentialResolver([_Provider(credentials)]))
    # The models of AWS's APIs are read once for all clusters.
    session.register_component("data_loader", base.get_component("data_loader"))
    return session


def _assumed(sts: Any, request: Mapping[str, Any]) -> Mapping[str, Any]:
    # botocore asks for credentials in the middle of another call, whose answer STS's refusal would be taken for.
    try:
        answer: Mapping[str, Any] = sts.assume_role(**request)
    except ClientError as error:
        code, message = error_code(error), error_message(error)
        raise SessionFailed(role=request["RoleArn"], code=code, message=message) from error
    return answer


def _credentials(answer: Mapping[str, Any], role_arn: str) -> dict[str, str]:
    """Return the credentials of an AssumeRole response in botocore's format."""
    fields = answer["Credentials"]
    return {
        "access_key": fields["AccessKeyId"],
        "secret_key": fields["SecretAccessKey"],
        "token": fields["SessionToken"],
        "expiry_time": fields["Expiration"].isoformat(),
        "account_id": role_arn.split(":")[4],
    }
