"""The steps of connect inside the cluster. Pure functions of what was observed."""

from __future__ import annotations

from collections.abc import Iterator

from nodesmith_cli.connecting.actions import Apply, RestartForwarder, Row, changed, made, present
from nodesmith_cli.connecting.applying import State, reference
from nodesmith_cli.connecting.manifests import ADMISSION, CRD
from nodesmith_cli.connecting.observed import Inside, Object
from nodesmith_formats.wording import some


def installed(inside: Inside) -> Iterator[Row]:
    """Yield a row for each group of objects that connect installs."""
    for what, kinds in (
        ("CRDs", (CRD,)),
        ("RBAC of the functions", ("ClusterRole", "ClusterRoleBinding")),
        ("admission policies", ADMISSION),
        ("forwarder", ("Namespace", "ServiceAccount", "NetworkPolicy", "ConfigMap", "Deployment")),
    ):
        of_kinds = [each for each in inside.objects if each.manifest["kind"] in kinds]
        found = [each for each in of_kinds if each.state is not State.UNKNOWN_KIND]
        if found:
            yield _group(what, found)


def _group(what: str, found: list[Object]) -> Row:
    due = [each for each in found if is_due(each)]
    if not due:
        return present(what)
    names = some(_named(each) for each in due)
    action = Apply(tuple(each.manifest for each in due))
    is_new = len(due) == len(found) and all(each.state is State.MISSING for each in due)
    return made(what, names, action) if is_new else changed(what, names, action)


def is_due(object: Object) -> bool:  # noqa: A002
    """Return whether an object must be applied."""
    return not object.leave and object.state in (State.MISSING, State.DIFFERENT)


def restarted(inside: Inside) -> Iterator[Row]:
    """Yield the replacement of pods without credentials. EKS injects them only after the association exists."""
    if inside.without_credentials:
        detail = f"replace {some(inside.without_credentials)}, created before the Pod Identity association"
        yield changed("pods of the forwarder", detail, RestartForwarder())


def _named(one: Object) -> str:
    """Return `Kind/name` for an object, or only the name for a CRD."""
    is_crd = one.manifest["kind"] == CRD
    return str(one.manifest["metadata"]["name"]) if is_crd else reference(one.manifest)
