"""Authentication and authorization reviews: the only user may do everything."""

from __future__ import annotations

from nodesmith_formats.kubernetes.errors import no_such_path
from nodesmith_formats.kubernetes.objects import Object, dig
from nodesmith_local.apiserver.requests.messages import Reply, Request, reply

_USER = {"username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"]}
_EVERYTHING = {
    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "incomplete": False,
}


def reviewed(kind: str, request: Request) -> Reply:
    """Answer a create of one of the review kinds (`selfsubjectaccessreviews` …). Raises ApiError 404 or 400."""
    review = request.decoded()
    status: Object
    match kind:
        case "selfsubjectaccessreviews" | "subjectaccessreviews" | "localsubjectaccessreviews":
            status = {"allowed": True, "reason": "this server allows every request"}
        case "selfsubjectrulesreviews":
            status = dict(_EVERYTHING)
        case "selfsubjectreviews":
            status = {"userInfo": _USER}
        case "tokenreviews":
            token = dig(review, "spec", "token")
            status = {"authenticated": True, "user": _USER} if token else {"authenticated": False}
        case _:
            raise no_such_path()
    return reply({**review, "metadata": review.get("metadata") or {}, "status": status}, 201)
