"""What is changed in a simulation: manifests, prices, and settings of the cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from nodesmith.decisions.provisioning import Inputs, as_read
from nodesmith.decisions.provisioning.buffers.resolutions import resolutions
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.labels import ON_DEMAND, SPOT
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.ec2.catalog import Catalog, Offering
from nodesmith.model.karpenter.capacitybuffers import namespace_of
from nodesmith.model.nodeclasses.nodeclasses import parse_nodeclass
from nodesmith.model.nodeclasses.status import NodeClassStatus
from nodesmith.model.policies import NodeSettings
from nodesmith.observation.reduction.objects import reduce_buffer, reduce_custom
from nodesmith.settings import Settings
from nodesmith_cli.planning.manifests import Manifests, read_manifests
from nodesmith_cli.planning.nodeclasses import assumed_zones, statuses
from nodesmith_cli.planning.running import node_settings
from nodesmith_formats.catalogfiles import read_catalog_file

_FIELDS = {
    "NodePool": "nodepools",
    "EC2NodeClass": "nodeclasses",
    "NodeOverlay": "nodeoverlays",
    "CapacityBuffer": "capacitybuffers",
    "CapacityQuota": "quotas",
}
"""Kinds that can be changed, with their field in a snapshot."""
_DELETED_AT = datetime(2000, 1, 1, tzinfo=UTC)
_MOST_FACTOR = 1000.0
POLICIES = {
    about.metadata["env"]: about.name
    for about in fields(Settings)
    if about.name in {field.name for field in fields(NodeSettings)}
}
"""Settings of a cluster's registration that decisions read, with their field."""


@dataclass(frozen=True, slots=True)
class RequestedChanges:
    """What to change, as given on the command line."""

    files: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    prices: str = ""
    factors: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()

    @property
    def is_nothing(self) -> bool:
        """Whether nothing is changed."""
        return not (self.files or self.deleted or self.prices or self.factors or self.policies)


@dataclass(frozen=True, slots=True)
class Changed:
    """The changed inputs. `what` lists the changes, and `notes` what else should be known, each in a sentence."""

    inputs: Inputs
    what: tuple[str, ...]
    notes: tuple[str, ...] = ()


def changed(inputs: Inputs, changes: RequestedChanges) -> Changed:
    """Apply changes to the beginning of a simulation.

    Raises Rejected, with every fault, if one of them cannot be applied: without it, the comparison would be about
    something else.
    """
    what, notes = list[str](), list[str]()
    if changes.files:
        inputs = _with_manifests(inputs, changes.files, what, notes)
    for deleted in changes.deleted:
        inputs = _without(inputs, deleted)
        what.append(f"{deleted} is deleted")
    if changes.prices:
        inputs = replace(inputs, catalog=_priced(changes.prices, inputs.catalog, notes))
        what.append(f"prices of {changes.prices}")
    for factor in changes.factors:
        inputs = replace(inputs, catalog=_factored(factor, inputs.catalog))
        what.append(f"prices of {factor.replace('=', ' × ')}")
    if changes.policies:
        inputs = replace(inputs, settings=with_policies(inputs.settings, changes.policies))
        what += changes.policies
    ledger = as_read(inputs.ledger, inputs.snapshot)
    return Changed(replace(inputs, ledger=ledger), tuple(what), tuple(notes))


def _with_manifests(inputs: Inputs, files: Sequence[str], what: list[str], notes: list[str]) -> Inputs:
    manifests = read_manifests(files)
    if manifests.faults:
        lines = "\n  ".join(str(fault) for fault in manifests.faults[:20])
        raise Rejected(f"--change cannot be applied:\n  {lines}")
    notes += [
        f"--change: {kind} is ignored: {', '.join(_FIELDS)} can be changed" for kind in _others(manifests)
    ]
    found = [document_ for document_ in manifests.documents if document_.manifest["kind"] in _FIELDS]
    if not found:
        raise Rejected(f"--change {', '.join(files)}: no {', '.join(_FIELDS)} in it")
    for document in found:
        inputs = _upserted(inputs, document.manifest, notes)
        what.append(document.object)
    buffers = [each.manifest for each in found if each.manifest["kind"] == "CapacityBuffer"]
    notes += _without_effect(inputs, {f"{namespace_of(each)}/{each['metadata']['name']}" for each in buffers})
    return inputs


def _without_effect(inputs: Inputs, buffers: Collection[str]) -> Iterator[str]:
    """Yield why CapacityBuffers (namespace/name) keep no room in a simulation, each in a sentence."""
    for each in resolutions(inputs.snapshot, inputs.now):
        if each.key in buffers and each.is_warm:
            yield f"CapacityBuffer {each.key} has no effect: stopped instances are not simulated"
        elif each.key in buffers and not each.is_ready:
            known = "a simulation knows only what buffers of the recorded cluster refer to"
            yield f"CapacityBuffer {each.key} has no effect: {each.message}; {known}"


def _others(manifests: Manifests) -> list[str]:
    kinds = (
        {str(document.manifest["kind"]) for document in manifests.documents} - _FIELDS.keys() - {"Namespace"}
    )
    return sorted(kinds | set(manifests.unread))


def _upserted(inputs: Inputs, manifest: Mapping[str, Any], notes: list[str]) -> Inputs:
    kind, snapshot = str(manifest["kind"]), inputs.snapshot
    name, field = str(manifest["metadata"]["name"]), _FIELDS[kind]
    reduced = reduce_buffer(manifest) if kind == "CapacityBuffer" else reduce_custom(manifest)
    known: tuple[Mapping[str, Any], ...] = getattr(snapshot, field)
    before = next((existing for existing in known if _is(existing, manifest)), None)
    about = dict(reduced["metadata"])
    if before is not None:  # it stays the same object, which owns its nodes, with another spec
        about |= {
            key: before["metadata"][key] for key in ("uid", "creationTimestamp") if key in before["metadata"]
        }
        about["generation"] = int(before["metadata"].get("generation") or 1) + 1
    after = {**reduced, "metadata": about}
    others = (other for other in known if not _is(other, manifest))
    inputs = replace(inputs, snapshot=replace(snapshot, **{field: (*others, after)}))  # type: ignore[arg-type]
    return _resolved(inputs, after, name, notes) if kind == "EC2NodeClass" else inputs


def _is(each: Mapping[str, Any], manifest: Mapping[str, Any]) -> bool:
    mine, other = each["metadata"], manifest["metadata"]
    return (mine.get("name"), mine.get("namespace")) == (other.get("name"), other.get("namespace"))


def _resolved(inputs: Inputs, manifest: Mapping[str, Any], name: str, notes: list[str]) -> Inputs:
    """Return the inputs with a status of a changed EC2NodeClass: what it selected before, or what is assumed."""
    nodeclass, known = parse_nodeclass(manifest).value, inputs.ledger.nodeclasses
    if nodeclass is None:
        raise Rejected(f"--change EC2NodeClass/{name}: cannot be read")
    like: NodeClassStatus | None = known.get(name) or next(
        (known[other_name] for other_name in sorted(known)), None
    )
    if like is None:
        like = statuses([manifest], assumed_zones(inputs.catalog))[name]
    else:
        notes.append(
            f"EC2NodeClass {name}: subnets, security groups and images are those of {like.name}, "
            "since nothing is asked of AWS"
        )
    status = replace(
        like, name=name, generation=nodeclass.generation, hash=nodeclass.hash, content=nodeclass.content
    )
    return replace(inputs, ledger=replace(inputs.ledger, nodeclasses={**known, name: status}))


def _without(inputs: Inputs, named: str) -> Inputs:
    """Return the inputs without an object. The NodeClaims of a deleted NodePool are deleted with it."""
    kind, _, name = named.partition("/")
    kinds = {kind_name.lower(): kind_name for kind_name in _FIELDS}
    meant = kinds.get(kind.lower().removesuffix("s")) or kinds.get(kind.lower())
    if meant is not None and not name:
        raise Rejected(f"--delete {named}: name the object as well, such as {kind.lower()}/NAME")
    if meant is None:
        hint = (
            did_you_mean(kind.lower(), kinds) or f": use one of {', '.join(f'{each}/NAME' for each in kinds)}"
        )
        raise Rejected(f"--delete {named}: not a kind that can be deleted{hint}")
    field = _FIELDS[meant]
    known: tuple[Mapping[str, Any], ...] = getattr(inputs.snapshot, field)
    names = [str(existing["metadata"]["name"]) for existing in known]
    if name not in names:
        hint = did_you_mean(name, names) or f"; there is {', '.join(sorted(names)) or 'none'}"
        raise Rejected(f"--delete {named}: the cluster has no {meant} {name!r}{hint}")
    left = tuple(existing for existing in known if existing["metadata"]["name"] != name)
    snapshot = replace(inputs.snapshot, **{field: left})  # type: ignore[arg-type]
    if meant == "NodePool":
        ended = tuple(_deleted(claim.name) for claim in inputs.ledger.claims if claim.nodepool == name)
        snapshot = replace(snapshot, nodeclaims=(*snapshot.nodeclaims, *ended))
    return replace(inputs, snapshot=snapshot)


def _deleted(claim: str) -> dict[str, Any]:
    return {"metadata": {"name": claim, "deletionTimestamp": format_time(_DELETED_AT)}}


def _priced(path: str, catalog: Catalog, notes: list[str]) -> Catalog:
    """Return the catalogue of a file, completed by the known one for types that the file does not have."""
    file = Path(path)
    try:
        data, made_at = file.read_bytes(), datetime.fromtimestamp(file.stat().st_mtime, UTC)
    except OSError as error:
        raise Rejected(f"--prices {file}: {error.strerror}") from None
    found, problems = read_catalog_file(data, made_at, f"--prices {file}")
    notes += [f"{file}: {problem}" for problem in problems[:20]]
    unknown = sorted(found.facts.keys() - catalog.facts.keys())
    if unknown:
        notes.append(
            f"{file}: {len(unknown)} instance types are not in the catalogue before, such as {unknown[0]}"
        )
    facts = {**catalog.facts, **found.facts}
    return Catalog.of(
        catalog.region, made_at, facts, {**catalog.offerings, **found.offerings}, catalog.currency
    )


def _factored(text: str, catalog: Catalog) -> Catalog:
    """Return the catalogue with prices multiplied: of a capacity type, or of instance types with wildcards."""
    which, _, number = text.partition("=")
    try:
        factor = float(number)
    except ValueError:
        factor = -1.0
    if not 0 < factor <= _MOST_FACTOR:
        raise Rejected(f"--price-factor {text}: expected a name and a positive factor, such as {SPOT}=1.2")
    matched = 0

    def priced(name: str, offering: Offering) -> Offering:
        nonlocal matched
        if which != offering.capacity_type and not fnmatchcase(name, which):
            return offering
        matched += 1
        return replace(offering, price_hourly_usd=offering.price_hourly_usd * factor)

    offerings = {
        name: tuple(priced(name, sale) for sale in sold) for name, sold in sorted(catalog.offerings.items())
    }
    if not matched:
        known = (SPOT, ON_DEMAND, *catalog.offerings)
        hint = did_you_mean(which, known) or f": use {SPOT}, {ON_DEMAND} or types such as m5.*"
        raise Rejected(f"--price-factor {text}: no offering is called {which!r}{hint}")
    return Catalog.of(
        catalog.region, catalog.made_at, catalog.facts, offerings, catalog.currency, catalog.prices
    )


def with_policies(settings: NodeSettings, policies: Iterable[str]) -> NodeSettings:
    """Return the settings with others, given as NAME=VALUE as in a registration. Raises Rejected."""
    for text in policies:
        name, equals, value = text.partition("=")
        known = name.upper().replace("-", "_")
        if not equals or known not in POLICIES:
            hint = did_you_mean(known, POLICIES) or f"; settings: {', '.join(sorted(POLICIES))}"
            raise Rejected(f"--policy {text}: expected NAME=VALUE with a setting that decisions read{hint}")
        read = node_settings({known: value})
        settings = replace(settings, **{POLICIES[known]: getattr(read, POLICIES[known])})
    return settings
