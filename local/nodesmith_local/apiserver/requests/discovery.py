"""The discovery documents, in the old form and in the aggregated one."""

from __future__ import annotations

from collections.abc import Iterator

from nodesmith_formats.kubernetes.errors import no_such_path
from nodesmith_formats.kubernetes.kinds import ALL_VERBS, Resource
from nodesmith_formats.kubernetes.objects import Object
from nodesmith_local.apiserver.requests.messages import NO_SUCH_PAGE, Reply, Request, reply
from nodesmith_local.apiserver.storage.registry import Registry

_READ_WRITE = ("get", "patch", "update")
_REVIEWS = {
    "authentication.k8s.io": (("TokenReview", False), ("SelfSubjectReview", False)),
    "authorization.k8s.io": (
        ("SelfSubjectAccessReview", False),
        ("SelfSubjectRulesReview", False),
        ("SubjectAccessReview", False),
        ("LocalSubjectAccessReview", True),
    ),
}


def discovered(registry: Registry, request: Request) -> Reply:
    """Answer /api, /apis, /apis/G and /apis/G/V. Raises ApiError 404."""
    segments = request.path.strip("/").split("/")
    form = _aggregated_version(request.accept)
    match segments:
        case ["api"] if form:
            return _aggregated(registry, form, core=True)
        case ["apis"] if form:
            return _aggregated(registry, form, core=False)
        case ["api"]:
            return reply({"kind": "APIVersions", "versions": ["v1"]})
        case ["apis"]:
            groups = [_group(group, versions) for group, versions in _groups(registry).items() if group]
            return reply({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        case ["apis", group] if group in _groups(registry):
            return reply({"kind": "APIGroup", "apiVersion": "v1", **_group(group, _groups(registry)[group])})
        case ["api", "v1"]:
            return reply(_resource_list(registry, "", "v1"))
        case ["apis", group, version] if version in _groups(registry).get(group, ()):
            return reply(_resource_list(registry, group, version))
        case ["apis", group, *_] if group not in _groups(registry):
            return NO_SUCH_PAGE
        case _:
            raise no_such_path()


def _groups(registry: Registry) -> dict[str, tuple[str, ...]]:
    return {**registry.groups(), **dict.fromkeys(_REVIEWS, ("v1",))}


def _group(group: str, versions: tuple[str, ...]) -> Object:
    listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": listed, "preferredVersion": listed[0]}


def _resource_list(registry: Registry, group: str, version: str) -> Object:
    group_version = f"{group}/{version}" if group else version
    resources: list[Object] = []
    for kind, namespaced in _REVIEWS.get(group, ()):
        resources.append(
            {
                "name": f"{kind.lower()}s",
                "singularName": kind.lower(),
                "namespaced": namespaced,
                "kind": kind,
                "verbs": ["create"],
            }
        )
    served = [
        candidate for candidate in registry if candidate.group == group and version in candidate.versions
    ]
    for resource in sorted(served, key=lambda each: each.plural):
        entry: Object = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
        }
        entry |= {"kind": resource.kind, "verbs": list(ALL_VERBS)}
        if resource.short_names:
            entry["shortNames"] = list(resource.short_names)
        if resource.categories:
            entry["categories"] = list(resource.categories)
        resources.append(entry)
        for name, (sub_group, sub_version, kind), verbs in _subresources(resource, version):
            sub: Object = {
                "name": f"{resource.plural}/{name}",
                "singularName": "",
                "namespaced": resource.namespaced,
            }
            if (sub_group, sub_version) != (group, version):
                sub |= {"group": sub_group, "version": sub_version}
            resources.append({**sub, "kind": kind, "verbs": list(verbs)})
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": resources,
    }


def _subresources(
    resource: Resource, version: str
) -> Iterator[tuple[str, tuple[str, str, str], tuple[str, ...]]]:
    own = (resource.group, version, resource.kind)
    if resource.status:
        yield "status", own, _READ_WRITE
    if resource.scale:
        yield "scale", ("autoscaling", "v1", "Scale"), _READ_WRITE
    if resource.name == "pods":
        yield "binding", ("", "v1", "Binding"), ("create",)
        yield "eviction", ("policy", "v1", "Eviction"), ("create",)
        yield "log", ("", "v1", "Pod"), ("get",)
        yield "resize", ("", "v1", "Pod"), _READ_WRITE


def _aggregated_version(accept: str) -> str:
    """Return the newest version of aggregated discovery that the client accepts, or "" if it accepts none."""
    choices = [choice for choice in accept.split(",") if "as=APIGroupDiscoveryList" in choice]
    return next((v for v in ("v2", "v2beta1") for choice in choices if f"v={v};" in f"{choice};"), "")


def _aggregated(registry: Registry, form: str, *, core: bool) -> Reply:
    groups = {group: versions for group, versions in _groups(registry).items() if (group == "") == core}
    items = [
        {
            "metadata": {"name": group} if group else {},
            "versions": [
                {
                    "version": version,
                    "freshness": "Current",
                    "resources": list(_aggregated_resources(registry, group, version)),
                }
                for version in versions
            ],
        }
        for group, versions in groups.items()
    ]
    head: Object = {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{form}",
        "metadata": {},
    }
    plain = reply({**head, "items": items})
    return Reply(
        plain.body, content_type=f"application/json;g=apidiscovery.k8s.io;v={form};as=APIGroupDiscoveryList"
    )


def _aggregated_resources(registry: Registry, group: str, version: str) -> Iterator[Object]:
    listed = _resource_list(registry, group, version)["resources"]
    for entry in (item for item in listed if "/" not in item["name"]):
        aggregated: Object = {
            "resource": entry["name"],
            "responseKind": {"group": group, "version": version, "kind": entry["kind"]},
            "scope": "Namespaced" if entry["namespaced"] else "Cluster",
            "singularResource": entry["singularName"],
            "verbs": entry["verbs"],
        }
        aggregated |= {key: entry[key] for key in ("shortNames", "categories") if key in entry}
        subresources = [
            {
                "subresource": item["name"].partition("/")[2],
                "responseKind": {
                    "group": item.get("group", group),
                    "version": item.get("version", version),
                    "kind": item["kind"],
                },
                "verbs": item["verbs"],
            }
            for item in listed
            if item["name"].startswith(f"{entry['name']}/")
        ]
        yield {**aggregated, "subresources": subresources} if subresources else aggregated
