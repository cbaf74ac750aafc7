"""Manifests from files: readable objects are kept; others become faults with file, document, line and field."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from nodesmith_formats.manifests.documents import (
    MOST_NODES,
    BadDocument,
    line_of,
    parse_document,
    split_documents,
)

STDIN = "-"
Identity: TypeAlias = tuple[Hashable, ...]
_SUFFIXES = (".yaml", ".yml", ".json")
_GZIP = b"\x1f\x8b"
_MOST_FOR_ONE, _ALWAYS = 200, 2**26
"""The most bytes that one compressed byte may expand to, and the size that is always allowed.

Manifests of a large cluster expand about fifty times.
"""
_LONGEST_SHOWN = 253
"""Characters of a name or field to show; an API server accepts no longer names."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that cannot be used, and its place. `line` counts from 1; 0 and "" mean unknown."""

    message: str
    file: str
    document: int = 0
    line: int = 0
    object: str = ""
    field: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        subject = [f"document {self.document}"] * bool(self.document) + [self.object] * bool(self.object)
        return ": ".join(
            [place + (f" ({', '.join(subject)})" if subject else "")]
            + [self.field] * bool(self.field)
            + [self.message]
        )


@dataclass(frozen=True, slots=True)
class Document:
    """One object as a file contains it."""

    manifest: Mapping[str, Any]
    file: str
    number: int = 1
    """The number of the document in its file, from 1."""
    node: yaml.Node | None = field(default=None, repr=False, compare=False)
    first_line: int = 1
    text: str = field(default="", repr=False, compare=False)
    """The source text; for an item of a List, that of the whole List."""
    original: Document | None = field(default=None, repr=False, compare=False)
    """The document that this one was converted from."""
    field_of_old: Callable[[str], str] | None = field(default=None, repr=False, compare=False)
    """Maps a field to its path in the old object, or to "" for a field that did not exist there."""

    @property
    def object(self) -> str:
        """Kind and name: `NodePool/default`."""
        metadata = self.manifest.get("metadata") or {}
        return _shortened(
            f"{self.manifest.get('kind')}/{metadata.get('name') or metadata.get('generateName')}"
        )

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.file}:{self.fault('').line or self.first_line}"

    @property
    def identity(self) -> Identity:
        """The key that identifies the object in a cluster; a generated name is always unique."""
        metadata = self.manifest["metadata"]
        group = str(self.manifest["apiVersion"]).rpartition("/")[0]
        name = metadata.get("name") or object()
        return group, self.manifest["kind"], metadata.get("namespace") or "default", name

    def fault(self, message: str, field: str = "") -> Fault:
        """Return a fault of this object, at the line of `field` or of its nearest existing parent.

        For a converted object, the fault names the old field, which is the one in the file.
        """
        if self.original is not None and self.field_of_old is not None:
            old = self.field_of_old(field)
            current_name = f" (today's {_shortened(field)})" if field != old else ""
            return self.original.fault(message + current_name, old)
        line = line_of(self.node, field, self.first_line) if self.node else 0
        return Fault(message, self.file, self.number, line, self.object, _shortened(field))


@dataclass(frozen=True, slots=True)
class Manifests:
    """All objects that were read, in order, and all faults."""

    documents: tuple[Document, ...] = ()
    faults: tuple[Fault, ...] = ()

    def of_kind(self, *kinds: str) -> Iterator[Mapping[str, Any]]:
        """Return the manifests of these kinds."""
        return (d.manifest for d in self.documents if d.manifest["kind"] in kinds)


def load_manifests(paths: Sequence[str]) -> Manifests:
    """Read files, folders (their YAML and JSON files by name, without subfolders) and `-` for standard input.

    Each may be compressed with gzip. A List yields its items; of several documents for one object, the last takes
    precedence. Never raises: problems are in `faults`.
    """
    documents: dict[Identity, Document] = {}
    faults: list[Fault] = []
    for item in read_documents(paths):
        match item:
            case Fault():
                faults.append(item)
            case Document():
                earlier = documents.get(item.identity)
                if earlier is not None:
                    faults.append(earlier.fault(f"is given again in {item.place}, which takes precedence"))
                documents[item.identity] = item
    return Manifests(tuple(documents.values()), tuple(faults))


def read_documents(paths: Sequence[str], most_values: int = MOST_NODES) -> Iterator[Document | Fault]:
    """Yield everything in the files, in order, duplicates included. See `load_manifests`.

    A document with more than `most_values` values is refused, unless it is JSON.
    """
    for path in paths:
        yield from _read(path, most_values)


def _read(path: str, most_values: int) -> Iterator[Document | Fault]:
    if not path:  # such as an unset variable of a script; Path("") is the current folder
        yield Fault("is no file name", "''")
        return
    try:
        files = [STDIN] if path == STDIN else _files(Path(path))
    except OSError as error:
        yield Fault(error.strerror or str(error), path)
        return
    if not files:
        yield Fault(f"no {', '.join(_SUFFIXES)} file in this folder", path)
    for file in files:
        name = "standard input" if file == STDIN else str(file)
        try:
            text = _unzipped(_content(file)).decode("utf-8-sig")
        except (OSError, EOFError, zlib.error) as error:
            yield Fault(getattr(error, "strerror", None) or str(error), name)
        except UnicodeDecodeError as error:
            yield Fault(f"not UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}", name)
        else:
            yield from _documents(name, text, most_values)


def _content(file: Path | str) -> bytes:
    return sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()


def _unzipped(data: bytes) -> bytes:
    """Return the data, uncompressed.

    Raises OSError, EOFError or zlib.error for invalid gzip or a decompression bomb.
    """
    if not data.startswith(_GZIP):
        return data
    with gzip.GzipFile(fileobj=BytesIO(data)) as file:
        maximum = max(_ALWAYS, _MOST_FOR_ONE * len(data))
        text = file.read(maximum + 1)
    if len(text) > maximum:
        raise OSError(f"more than {maximum:,} bytes when uncompressed")
    return text


def _files(path: Path) -> Sequence[Path | str]:
    """Return the manifests of a folder, or the file itself. Raises OSError if the path does not exist."""
    path.stat()
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.iterdir() if _is_manifest(file.name) and file.is_file())


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _is_manifest(name: str) -> bool:
    return name.removesuffix(".gz").endswith(_SUFFIXES)


def _documents(file: str, text: str, most_values: int) -> Iterator[Document | Fault]:
    number = 0
    for number, (first_line, part) in enumerate(split_documents(text), start=1):
        try:
            node, value = parse_document(part, most_values)
        except BadDocument as error:
            yield Fault(str(error), file, number, first_line - 1 + error.line, field=error.field)
            continue
        if value is not None:
            yield from _objects(Document(value, file, number, node, first_line, part))
    if number == 0:
        yield Fault("contains no object" if text.strip() else "is empty", file)


def _objects(document: Document) -> Iterator[Document | Fault]:
    """Yield the document, or a List's items, each checked for the basic fields of a Kubernetes object."""
    manifest: Any = document.manifest
    if isinstance(manifest, Mapping) and _is_list(manifest):
        yield from _items(document)
        return
    fault = _shape_fault(manifest)
    if fault is None:
        yield document
    elif not _is_of_kustomize(manifest):
        message, field_path = fault
        fields = manifest if isinstance(manifest, Mapping) else {}
        line = line_of(document.node, field_path, document.first_line) if document.node else 0
        name = f"{fields.get('kind')}" if fields.get("kind") else ""
        yield Fault(message, document.file, document.number, line, name, field_path)


def _is_list(manifest: Mapping[str, Any]) -> bool:
    """Return whether this is a List, or a PodList or the like, whose items may omit their kind."""
    kind = manifest.get("kind")
    return isinstance(kind, str) and (kind == "List" or (kind.endswith("List") and "items" in manifest))


def _items(document: Document) -> Iterator[Document | Fault]:
    list_object = document.manifest
    items: Any = list_object.get("items") or ()
    nodes = _item_nodes(document.node, items)
    if nodes is None:
        line = line_of(document.node, "items", document.first_line)
        message = f"is {str(items)[:60]!r}: must be a list of objects"
        yield Fault(message, document.file, document.number, line, list_object["kind"], "items")
        return
    kind = list_object["kind"].removesuffix("List")
    for item, node in zip(items, nodes, strict=True):
        if kind and isinstance(item, Mapping):
            item = {"apiVersion": list_object.get("apiVersion"), "kind": kind, **item}
        yield from _objects(replace(document, manifest=item, node=node))


def _item_nodes(node: yaml.Node | None, items: Any) -> Sequence[yaml.Node | None] | None:
    """Return the node of each item, or None if the items are not a list."""
    if not isinstance(items, (list, tuple)):
        return None
    if not isinstance(node, yaml.MappingNode):
        return [None] * len(items)
    items_node = next((value for key, value in node.value if key.value == "items"), None)
    return items_node.value if isinstance(items_node, yaml.SequenceNode) else ()


def _is_of_kustomize(manifest: Any) -> bool:
    """Return whether this configures kustomize, such as kustomization.yaml, which is in the folder of manifests."""
    version = manifest.get("apiVersion") if isinstance(manifest, Mapping) else None
    return isinstance(version, str) and version.startswith("kustomize.config.k8s.io/")


def _shape_fault(manifest: Any) -> tuple[str, str] | None:
    if not isinstance(manifest, Mapping):
        return f"expected an object, found {str(manifest)[:60]!r}", ""
    for name in ("apiVersion", "kind"):
        if not isinstance(manifest.get(name), str) or not manifest[name]:
            return "is missing: every Kubernetes object names its apiVersion and kind", name
    metadata = manifest.get("metadata")
    if not isinstance(metadata, Mapping):
        return "is missing: the object needs at least a name", "metadata"
    if not (metadata.get("name") or metadata.get("generateName")):
        return "is missing", "metadata.name"
    return None
