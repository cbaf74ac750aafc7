"""A container's projected volumes as files: its account's token, the cluster's CA, the namespace's name."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodesmith.adapters.kubernetes.apiserver import ApiServer
from nodesmith.errors import Transient

Manifest = Mapping[str, Any]
_RENEWED_AT = 0.8  # of a token's lifetime, as the kubelet does


@dataclass(slots=True)
class Mounts:
    """A pod's first container's mounts, below `root` instead of `/`, read from the API server as the kubelet does.

    Every method may raise Transient when something that the pod names does not exist (yet).
    """

    server: ApiServer
    pod: Manifest
    root: Path
    _renewals: dict[Path, tuple[Manifest, float]] = field(default_factory=dict)

    def write(self) -> None:
        """Write every file again."""
        volumes = {volume["name"]: volume for volume in self.pod["spec"].get("volumes", ())}
        for mount in self.pod["spec"]["containers"][0].get("volumeMounts", ()):
            folder = self.root / mount["mountPath"].lstrip("/")
            for source in volumes[mount["name"]]["projected"]["sources"]:
                self._project(source, folder)

    def renew(self) -> None:
        """Renew the tokens that are due."""
        for path, (source, due) in list(self._renewals.items()):
            if time.monotonic() >= due:
                self._write_token(source, path)

    def _project(self, source: Manifest, folder: Path) -> None:
        match source:
            case {"serviceAccountToken": token}:
                self._write_token(token, folder / token["path"])
            case {"configMap": {"name": name, "items": items}}:
                data = self.config_map(name)
                for item in items:
                    _replace(folder / item["path"], data[item["key"]])
            case {
                "downwardAPI": {"items": [{"fieldRef": {"fieldPath": "metadata.namespace"}, "path": path}]}
            }:
                _replace(folder / path, self.pod["metadata"]["namespace"])
            case _:
                raise ValueError(f"a projected volume has an unsupported source: {source}")

    def config_map(self, name: str) -> Mapping[str, str]:
        """Read a ConfigMap of the pod's namespace."""
        found = self.server.get(f"{self._namespace}/configmaps/{name}")
        if found is None:
            raise Transient(f"ConfigMap {name} does not exist")
        return dict(found.get("data") or {})

    def _write_token(self, source: Manifest, path: Path) -> None:
        """Request a token that lives no longer than the pod."""
        metadata, spec = self.pod["metadata"], self.pod["spec"]
        pod = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        seconds = source["expirationSeconds"]
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds, "boundObjectRef": pod},
        }
        account = f"{self._namespace}/serviceaccounts/{spec['serviceAccountName']}/token"
        _replace(path, self.server.create(account, request)["status"]["token"])
        self._renewals[path] = source, time.monotonic() + _RENEWED_AT * seconds

    @property
    def _namespace(self) -> str:
        return f"/api/v1/namespaces/{self.pod['metadata']['namespace']}"


def _replace(path: Path, text: str) -> None:
    """Write a file atomically, so that it is never read half-written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f".{path.name}")
    written.write_text(text)
    written.replace(path)
