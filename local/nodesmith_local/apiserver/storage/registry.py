"""The kinds that the server currently serves, found by path, by kind or by name."""

from __future__ import annotations

from collections.abc import Iterator

from nodesmith_formats.kubernetes.errors import bad_request
from nodesmith_formats.kubernetes.kinds import BUILTIN, Resource
from nodesmith_formats.kubernetes.objects import View


class Registry:
    """The served kinds by name; CRDs add and remove kinds while the server runs."""

    def __init__(self) -> None:
        self._by_name: dict[str, Resource] = {resource.name: resource for resource in BUILTIN}

    def __iter__(self) -> Iterator[Resource]:
        return iter(tuple(self._by_name.values()))

    def add(self, resource: Resource) -> None:
        """Serve a custom resource, or replace an earlier definition of it."""
        self._by_name[resource.name] = resource

    def remove(self, name: str) -> None:
        """Stop serving a custom resource."""
        self._by_name.pop(name, None)

    def at(self, group: str, version: str, plural: str) -> Resource | None:
        """Return the resource that `/apis/{group}/{version}/{plural}` serves, or None."""
        resource = self._by_name.get(f"{plural}.{group}" if group else plural)
        return resource if resource and version in resource.versions else None

    def named(self, name: str) -> Resource:
        """Return a resource by its plural, with the group where the plural alone is ambiguous.

        Raises LookupError, since an in-process call for a kind that is not served is a mistake of the caller.
        """
        matching = [resource for resource in self if name in (resource.name, resource.plural)]
        if not matching:
            raise LookupError(f"no resource {name!r} is served; there are {', '.join(sorted(self._by_name))}")
        return next((resource for resource in matching if resource.name == name), matching[0])

    def of(self, obj: View) -> Resource:
        """Return the resource of an object by its apiVersion and kind. Raises ApiError 400."""
        api_version, kind = str(obj.get("apiVersion", "")), str(obj.get("kind", ""))
        group, _, version = api_version.rpartition("/")
        for resource in self:
            if resource.group == group and resource.kind == kind and version in resource.versions:
                return resource
        raise bad_request(f'no matches for kind "{kind}" in version "{api_version}"')

    def knows(self, group: str) -> bool:
        """Return whether the server serves any kind of this API group."""
        return any(resource.group == group for resource in self._by_name.values())

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Return each group with its versions, the preferred one first."""
        versions_by_group: dict[str, list[str]] = {}
        for resource in self:
            for version in resource.versions:
                versions = versions_by_group.setdefault(resource.group, [])
                if version not in versions:
                    versions.append(version)
        return {group: tuple(versions) for group, versions in versions_by_group.items()}
