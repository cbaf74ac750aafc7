"""Parser of the tokens with which AWS principals authenticate to an EKS cluster; it works without AWS."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import parse_qs, urlsplit

_PREFIX = "k8s-aws-v1."


def access_key_of(token: str) -> str:
    """Return the access key that signed a token, or "" if this is not such a token. Does not verify the signature."""
    if not token.startswith(_PREFIX):
        return ""
    encoded = token.removeprefix(_PREFIX)
    try:
        url = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
        credential = parse_qs(urlsplit(url).query).get("X-Amz-Credential", [""])[0]
    except (binascii.Error, ValueError):
        return ""
    return credential.partition("/")[0]
