"""Make nodesmith_formats/kubernetes/builtin_types.json from the Go modules that define Kubernetes' API.

    for module in api apimachinery apiextensions-apiserver; do go mod download k8s.io/$module@VERSION; done
    python formats/build_builtin_types.py "$(go env GOMODCACHE)/k8s.io" VERSION

The file lists the structs that are owned as a whole, and the fields of each struct. Each field is
`number type [word …]`: its protobuf field number, its Go type with the package in front, and these words:
`*` a pointer, so that zero differs from absent · `inline` its fields stand in the outer object ·
`merge:KEY` the key of a strategic merge · `keys:A,B` the keys of a list of type map · `set` · `atomic` · `retain`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

OUTPUT = Path(__file__).parent / "nodesmith_formats/kubernetes/builtin_types.json"
PACKAGES = {
    "core": "api@{}/core/v1/types.go",
    "apps": "api@{}/apps/v1/types.go",
    "authentication": "api@{}/authentication/v1/types.go",
    "authorization": "api@{}/authorization/v1/types.go",
    "autoscaling": "api@{}/autoscaling/v1/types.go",
    "batch": "api@{}/batch/v1/types.go",
    "coordination": "api@{}/coordination/v1/types.go",
    "node": "api@{}/node/v1/types.go",
    "policy": "api@{}/policy/v1/types.go",
    "rbac": "api@{}/rbac/v1/types.go",
    "resource": "api@{}/resource/v1/types.go",
    "scheduling": "api@{}/scheduling/v1/types.go",
    "storage": "api@{}/storage/v1/types.go",
    "meta": "apimachinery@{}/pkg/apis/meta/v1/types.go",
    "apiextensions": "apiextensions-apiserver@{}/pkg/apis/apiextensions/v1/types.go",
}
ROOTS = (
    "core.Namespace core.Pod core.Node core.Event core.Service core.ServiceAccount core.ConfigMap core.Secret "
    "core.PersistentVolume core.PersistentVolumeClaim core.ReplicationController core.PodTemplate core.Binding "
    "apps.Deployment apps.ReplicaSet apps.StatefulSet apps.DaemonSet autoscaling.Scale batch.Job batch.CronJob "
    "coordination.Lease policy.PodDisruptionBudget policy.Eviction rbac.Role rbac.RoleBinding rbac.ClusterRole "
    "rbac.ClusterRoleBinding scheduling.PriorityClass storage.CSIDriver storage.CSINode storage.StorageClass "
    "storage.VolumeAttachment apiextensions.CustomResourceDefinition meta.DeleteOptions "
    "authentication.TokenReview authentication.SelfSubjectReview authorization.SelfSubjectAccessReview "
    "authorization.SelfSubjectRulesReview authorization.SubjectAccessReview authorization.LocalSubjectAccessReview "
    "core.LimitRange node.RuntimeClass "
    "resource.DeviceClass resource.ResourceClaim resource.ResourceClaimTemplate resource.ResourceSlice"
).split()
SCALARS = set("string bool int32 int64 float64 bytes Quantity IntOrString Time MicroTime any".split())
SPECIAL = {
    "resource.Quantity": "Quantity",
    "intstr.IntOrString": "IntOrString",
    "meta.Time": "Time",
    "meta.MicroTime": "MicroTime",
    "meta.FieldsV1": "any",
    "runtime.RawExtension": "any",
    "apiextensions.JSONSchemaProps": "any",
    "apiextensions.JSON": "any",
    "types.UID": "string",
    "authentication.ExtraValue": "any",
    "authorization.ExtraValue": "any",
    "int": "int64",
    "[]byte": "bytes",
}
IMPORTS = {"metav1": "meta", "v1": "core", "corev1": "core", "apiv1": "core"}

_STRUCT = re.compile(r"^type (\w+) struct ?\{(?:\}|\n(.*?)^\})", re.M | re.S)
_WHOLE = re.compile(r"^// \+structType=atomic\n(?://.*\n)*type (\w+) struct", re.M)
_ALIAS = re.compile(r"^type (\w+) (=? ?[\w.\[\]*]+)$", re.M)
_FIELD = re.compile(r"^\t(?:(\w+)[ \t]+)?([\w.\[\]*]+)[ \t]+`([^`]*)`")


def main(root: Path, version: str) -> None:
    """Read the modules under `root` and write the file."""
    sources = {name: (root / path.format(version)).read_text() for name, path in PACKAGES.items()}
    aliases = {f"{p}.{m[1]}": m[2].lstrip("= ") for p, text in sources.items() for m in _ALIAS.finditer(text)}
    bodies = {f"{p}.{m[1]}": m[2] or "" for p, text in sources.items() for m in _STRUCT.finditer(text)}
    structs: dict[str, dict[str, str]] = {}
    waiting = list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name in structs:
            continue
        structs[name] = dict(_fields(name.partition(".")[0], bodies[name], aliases))
        for text in structs[name].values():
            element = re.sub(r"^(\[\]|map\[string\])*", "", text.split()[1])
            if element not in SCALARS:
                waiting.append(element)
    atomic_structs = sorted(
        {f"{p}.{m[1]}" for p, text in sources.items() for m in _WHOLE.finditer(text)} & structs.keys()
    )
    document = {"version": version, "atomic": atomic_structs, "types": dict(sorted(structs.items()))}
    OUTPUT.write_text(json.dumps(document, indent=0, separators=(",", ":")) + "\n")


def _fields(package: str, body: str, aliases: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    marks: list[str] = []
    for line in body.splitlines():
        comment = re.match(r"\t// ?(\+\S+)", line)
        if comment:
            marks.append(comment[1])
            continue
        match = _FIELD.match(line)
        if match is None:
            marks = [] if not line.strip() else marks
            continue
        yield from _field(package, match[2], match[3], marks, aliases)
        marks = []


def _field(
    package: str, go_type: str, tags: str, marks: list[str], aliases: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    json_tag = re.search(r'json:"([^"]*)"', tags)
    number = re.search(r'protobuf:"\w+,(\d+),\w+(?:,name=(\w+))?', tags)
    if json_tag is None or number is None or json_tag[1] == "-":
        return  # TypeMeta: travels in the envelope
    name, *options = json_tag[1].split(",")
    attributes = list(_words(tags, marks))
    if "inline" in options and not name:
        name, attributes = str(number[2]), ["inline", *attributes]
    if go_type.startswith("*"):
        attributes.insert(0, "*")
    yield name, " ".join([number[1], _resolved(package, go_type.lstrip("*"), aliases), *attributes])


def _words(tags: str, marks: list[str]) -> Iterator[str]:
    strategy = re.search(r'patchStrategy:"([^"]*)"', tags)
    key = re.search(r'patchMergeKey:"([^"]*)"', tags)
    if strategy and "merge" in strategy[1].split(","):
        yield f"merge:{key[1] if key else ''}"
    if strategy and "retainKeys" in strategy[1].split(","):
        yield "retain"
    keys = [mark.partition("=")[2] for mark in marks if mark.startswith("+listMapKey=")]
    if "+listType=map" in marks:
        yield f"keys:{','.join(keys)}"
    if "+listType=set" in marks:
        yield "set"
    if "+structType=atomic" in marks or "+mapType=atomic" in marks:
        yield "atomic"


def _resolved(package: str, go_type: str, aliases: Mapping[str, str]) -> str:
    """Return a type with aliases followed: scalars bare, structs with their package."""
    if go_type in SPECIAL:
        return SPECIAL[go_type]
    if go_type.startswith("[]"):
        return f"[]{_resolved(package, go_type[2:].lstrip('*'), aliases)}"
    if go_type.startswith("map["):
        return f"map[string]{_resolved(package, go_type.partition(']')[2].lstrip('*'), aliases)}"
    if go_type in SCALARS:
        return go_type
    package_path, dot, name = go_type.rpartition(".")
    full = f"{IMPORTS.get(package_path, package_path) if dot else package}.{name}"
    if full in SPECIAL:
        return SPECIAL[full]
    if full in aliases:
        return _resolved(full.partition(".")[0], aliases[full], aliases)
    return full


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
