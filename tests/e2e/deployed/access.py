"""Authentication: credentials of the template's roles, and the Kubernetes user of a token signed with them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from moto.core import DEFAULT_ACCOUNT_ID
from moto.sts import sts_backends

from tests.infra.templates import Template

PREFIX = "k8s-aws-v1."
TOKEN_LIFE = timedelta(minutes=15)
_CLUSTER_HEADER = "x-k8s-aws-id"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials that STS returned for a role."""

    role_arn: str
    session: str
    access_key: str
    secret: str
    token: str

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the environment variables through which an SDK uses the credentials."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_SESSION_TOKEN": self.token,
        }


def assumed(access_key: str) -> Credentials | None:
    """Return the credentials that STS returned with an access key, or None for a key of another origin."""
    for each in list(sts_backends[DEFAULT_ACCOUNT_ID]["aws"].assumed_roles):
        if each.access_key_id == access_key:
            return Credentials(
                each.role_arn, each.session_name, access_key, each.secret_access_key, each.session_token
            )
    return None


def assume(sts: Any, role_arn: str, session: str) -> Credentials:
    """Assume a role, as Lambda does for a function and EKS Pod Identity for a pod."""
    given = sts.assume_role(RoleArn=role_arn, RoleSessionName=session)["Credentials"]
    return Credentials(
        role_arn, session, given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"]
    )


class Authenticator:
    """EKS's token authenticator with a template's access entries. Tokens expire in real time, whatever the clock."""

    def __init__(
        self,
        template: Template,
        cluster: str,
        credentials: Callable[[str], Credentials | None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._cluster, self._credentials, self._now = cluster, credentials, now
        self._entries = {
            entry["PrincipalArn"]: entry
            for entry in template.of_type("EKS::AccessEntry").values()
            if entry["ClusterName"] == cluster
        }

    def authenticate(self, token: str) -> tuple[str, tuple[str, ...]] | None:
        """Return user name and groups; None if the token is malformed, expired, forged or has no access entry."""
        question = _presigned(token)
        if question is None:
            return None
        signer = self._credentials(question.access_key)
        age = self._now() - question.signed_at
        if signer is None or not timedelta(minutes=-1) <= age < TOKEN_LIFE:
            return None
        if not hmac.compare_digest(question.signature, question.signature_by(signer.secret, self._cluster)):
            return None
        entry = self._entries.get(signer.role_arn)
        if entry is None:
            return None
        account, _, role = signer.role_arn.split(":", 4)[4].partition(":role/")
        usual = f"arn:aws:sts::{account}:assumed-role/{role}/{{{{SessionName}}}}"
        user = entry.get("Username", usual).replace("{{SessionName}}", signer.session)
        return user, tuple(entry.get("KubernetesGroups", ()))


@dataclass(frozen=True, slots=True)
class _Question:
    """A presigned GetCallerIdentity request."""

    host: str
    path: str
    query: tuple[tuple[str, str], ...]
    access_key: str
    scope: tuple[str, ...]
    signed_at: datetime
    signature: str

    def signature_by(self, secret: str, cluster: str) -> str:
        """Return the SigV4 signature of the same request for a cluster, with the cluster's name in a signed header."""
        query = "&".join(
            f"{quote(key, safe='-_.~')}={quote(value, safe='-_.~')}" for key, value in sorted(self.query)
        )
        headers = f"host:{self.host}\n{_CLUSTER_HEADER}:{cluster}\n"
        signed = f"host;{_CLUSTER_HEADER}"
        request = "\n".join(["GET", self.path, query, headers, signed, hashlib.sha256(b"").hexdigest()])
        stamp = self.signed_at.strftime("%Y%m%dT%H%M%SZ")
        digest = hashlib.sha256(request.encode()).hexdigest()
        text = "\n".join(["AWS4-HMAC-SHA256", stamp, "/".join(self.scope), digest])
        key = f"AWS4{secret}".encode()
        for part in self.scope:
            key = hmac.digest(key, part.encode(), "sha256")
        return hmac.digest(key, text.encode(), "sha256").hex()


def _presigned(token: str) -> _Question | None:
    """Read a token; return None unless it is a presigned GetCallerIdentity that signs a cluster's name."""
    if not token.startswith(PREFIX):
        return None
    encoded = token.removeprefix(PREFIX)
    try:
        url = urlsplit(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode())
        query = dict(parse_qsl(url.query, keep_blank_values=True, strict_parsing=True))
        signature = query.pop("X-Amz-Signature")
        access_key, *scope = query["X-Amz-Credential"].split("/")
        signed_at = datetime.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except (ValueError, KeyError, binascii.Error):
        return None
    right = (
        url.scheme == "https"
        and url.netloc.startswith("sts.")
        and query.get("Action") == "GetCallerIdentity"
        and _CLUSTER_HEADER in query.get("X-Amz-SignedHeaders", "").split(";")
    )
    if not right:
        return None
    return _Question(
        url.netloc, url.path or "/", tuple(query.items()), access_key, tuple(scope), signed_at, signature
    )
