"""SSM Parameter Store: the registrations of clusters, and which of them a trial release serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from nodesmith.adapters.aws.errors import transient_errors
from nodesmith.errors import Rejected
from nodesmith.registration import (
    CANARY_PARAMETER,
    CLUSTER_NAME,
    NO_TRIAL,
    PARAMETERS,
    Registration,
    Trial,
    parameter_name,
    read_registration,
    read_trial,
)

READ_AGAIN = timedelta(minutes=1)
"""How long a function uses a value before it reads it again."""


class SsmRegistrations:
    """The registrations of a region's clusters. `client` returns a boto3 SSM client and is called on first use."""

    def __init__(self, client: Callable[[], Any], clock: Callable[[], datetime]) -> None:
        self._client, self._clock = client, clock
        self._read: dict[str, tuple[datetime, Registration]] = {}
        self._trial = NO_TRIAL

    def get(self, cluster: str) -> Registration:
        """Return a cluster's registration, at most a minute old.

        Raises Rejected if there is none or it cannot be read. Raises Transient.
        """
        now = self._clock()
        read_at, known = self._read.get(cluster, (None, None))
        if known is not None and read_at is not None and now - read_at < READ_AGAIN:
            return known
        registration = read_registration(cluster, self._value(cluster), of_any_release=True)
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
        found, faults = [], {}
        with transient_errors("ssm:GetParametersByPath"):
            pages = self._client().get_paginator("get_parameters_by_path").paginate(Path=PARAMETERS)
            values = {p["Name"].rpartition("/")[2]: p["Value"] for page in pages for p in page["Parameters"]}
        for cluster in sorted(values):
            try:
                found.append(read_registration(cluster, values[cluster], of_any_release=True))
            except Rejected as error:
                faults[cluster] = str(error)
        return found, faults

    def _value(self, cluster: str) -> str:
        unknown = f"cluster {cluster[:100]!r} is not registered: `nodesmith connect` registers it"
        if not CLUSTER_NAME.fullmatch(cluster):
            raise Rejected(unknown)
        with transient_errors("ssm:GetParameters"):
            answer = self._client().get_parameters(Names=[parameter_name(cluster), CANARY_PARAMETER])
        values = {each["Name"]: str(each["Value"]) for each in answer["Parameters"]}
        self._trial = _trial(values.get(CANARY_PARAMETER))
        if parameter_name(cluster) not in values:
            raise Rejected(unknown)
        return values[parameter_name(cluster)]


def _trial(text: str | None) -> Trial:
    """Read the trial. If it cannot be read, there is none, so the stable release serves all clusters."""
    try:
        return read_trial(text) if text is not None else NO_TRIAL
    except Rejected:
        return NO_TRIAL


class SsmTrials:
    """The Trials of a region. `client` returns a boto3 SSM client."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def current(self) -> Trial:
        """Return the trial in progress, or the one that ended last. Raises Transient."""
        with transient_errors("ssm:GetParameters"):
            answer = self._client().get_parameters(Names=[CANARY_PARAMETER])
        return _trial(next((str(each["Value"]) for each in answer["Parameters"]), None))

    def keep(self, trial: Trial) -> None:
        """Store the trial. Functions follow it within a minute. Raises Transient."""
        with transient_errors("ssm:PutParameter"):
            self._client().put_parameter(
                Name=CANARY_PARAMETER, Value=trial.to_json(), Type="String", Overwrite=True
            )
