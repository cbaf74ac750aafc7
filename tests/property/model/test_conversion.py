"""Conversion never raises, leaves v1 unchanged, and is idempotent."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nodesmith.model.karpenter.conversion.converting import KINDS, convert
from nodesmith.model.karpenter.conversion.drafts import FieldOutcome
from nodesmith.model.karpenter.conversion.labels import KINDS as WORKLOADS
from nodesmith.model.karpenter.conversion.labels import MISTAKEN, RENAMED
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.nodeclasses.nodeclasses import parse_nodeclass
from tests.property.model.manifestsofold import old_objects, todays_objects
from tests.samples import sampled

_WORDS = (
    "spec template metadata labels annotations requirements key operator values nodeClassRef apiVersion kind name "
    "provider providerRef limits resources consolidation enabled kubelet kubeletConfiguration subnetSelector amiFamily "
    "amiSelector amiSelectorTerms disruption expireAfter affinity nodeSelector matchExpressions"
).split()
_NAMES = st.sampled_from([*_WORDS, *MISTAKEN, *RENAMED]) | st.text(max_size=4)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=20,
)
_AGES = ("v1", "v1beta1", "v1alpha5", "v1alpha1")
HOSTILE = st.builds(
    lambda group_kind, age, spec, metadata: {
        "apiVersion": f"{group_kind[0]}/{age}",
        "kind": group_kind[1],
        "metadata": metadata,
        "spec": spec,
    },
    st.sampled_from([*KINDS, *(("apps", kind) for kind in sorted(WORKLOADS))]),
    st.sampled_from(_AGES),
    ANYTHING,
    st.fixed_dictionaries({"name": st.sampled_from("ab")}) | ANYTHING,
)


@settings(max_examples=sampled(60, whole=500), deadline=None)
@given(st.lists(HOSTILE, max_size=4))
def test_conversion_never_raises_or_modifies_its_input(manifests: list[dict[str, Any]]) -> None:
    before = deepcopy(manifests)
    found = convert(manifests, workloads=True)
    assert repr(manifests) == repr(before)
    for each in found.objects:
        parse = {"NodePool": parse_nodepool, "EC2NodeClass": parse_nodeclass}.get(
            str(each.manifest.get("kind"))
        )
        if parse is not None:
            parse(each.manifest)


@settings(max_examples=sampled(60, whole=500), deadline=None)
@given(todays_objects())
def test_conversion_leaves_v1_objects_unchanged(manifest: dict[str, Any]) -> None:
    found = convert([deepcopy(manifest)])
    assert [each.manifest for each in found.objects] == [manifest]
    assert found.changes == ()


@settings(max_examples=sampled(60, whole=500), deadline=None)
@given(st.lists(old_objects(), max_size=4, unique_by=lambda m: (m["kind"], m["metadata"]["name"])))
def test_converted_objects_can_be_parsed_and_need_no_further_conversion(
    manifests: list[dict[str, Any]],
) -> None:
    found = convert(manifests)
    again = convert([each.manifest for each in found.objects])

    assert [each.manifest for each in again.objects] == [each.manifest for each in found.objects]
    assert again.changes == ()
    refused = {change.object for change in found.changes if change.outcome is FieldOutcome.REFUSED}
    for each in found.objects:
        source = manifests[each.number]
        if f"{source['kind']}/{source['metadata']['name']}" in refused:
            continue
        parse = parse_nodepool if each.manifest["kind"] == "NodePool" else parse_nodeclass
        problems = [p for p in parse(each.manifest).problems if p.fatal]
        assert problems == []
