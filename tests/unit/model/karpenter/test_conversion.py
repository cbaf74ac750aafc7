"""Conversion of sets of old objects: related objects, implied defaults, and frequent mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from nodesmith.model.karpenter.conversion.converting import convert, needing_attention
from nodesmith.model.karpenter.conversion.drafts import Conversion, FieldOutcome, Origin
from nodesmith.model.karpenter.conversion.nodeclasses import InstallationSettings
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.nodeclasses.nodeclasses import DEFAULT_ROLE, parse_nodeclass

PROVISIONER = """
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: default}
spec:
  requirements:
    - {key: karpenter.sh/capacity-type, operator: In, values: [spot, on-demand]}
  limits: {resources: {cpu: 1000}}
  consolidation: {enabled: true}
  provider:
    subnetSelector: {karpenter.sh/discovery: blue}
    securityGroupSelector: {karpenter.sh/discovery: blue}
"""


def provisioner(name: str = "default", **spec: Any) -> dict[str, Any]:
    """Return a Provisioner of the AWSNodeTemplate `default`. None removes a field."""
    whole = {"providerRef": {"name": "default"}, **spec}
    kept = {field: value for field, value in whole.items() if value is not None}
    metadata = {"name": name}
    return {"apiVersion": "karpenter.sh/v1alpha5", "kind": "Provisioner", "metadata": metadata, "spec": kept}


def template(name: str = "default", **spec: Any) -> dict[str, Any]:
    tags = {"karpenter.sh/discovery": "blue"}
    whole = {"subnetSelector": tags, "securityGroupSelector": tags, "instanceProfile": "nodes", **spec}
    kept = {field: value for field, value in whole.items() if value is not None}
    metadata = {"name": name}
    return {
        "apiVersion": "karpenter.k8s.aws/v1alpha1",
        "kind": "AWSNodeTemplate",
        "metadata": metadata,
        "spec": kept,
    }


def beta_pool(**template_spec: Any) -> dict[str, Any]:
    spec = {"requirements": [], "nodeClassRef": {"name": "default"}, **template_spec}
    return {
        "apiVersion": "karpenter.sh/v1beta1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {"template": {"spec": spec}},
    }


def made(found: Conversion, kind: str, name: str = "default") -> Mapping[str, Any]:
    return next(
        o.manifest
        for o in found.objects
        if (o.manifest["kind"], o.manifest["metadata"]["name"]) == (kind, name)
    )


def said(found: Conversion, outcome: FieldOutcome) -> dict[str, str]:
    return {change.field: change.explanation for change in found.changes if change.outcome is outcome}


def requirements(found: Conversion) -> dict[str, list[str]]:
    pool = made(found, "NodePool")
    return {r["key"]: r.get("values") for r in pool["spec"]["template"]["spec"]["requirements"]}


def test_a_provisioner_with_its_provider_becomes_a_pool_and_a_class_that_can_both_be_read() -> None:
    found = convert([yaml.safe_load(PROVISIONER)])

    assert [each.manifest["kind"] for each in found.objects] == ["NodePool", "EC2NodeClass"]
    pool, nodeclass = parse_nodepool(made(found, "NodePool")), parse_nodeclass(made(found, "EC2NodeClass"))
    assert pool.problems == nodeclass.problems == ()
    assert pool.value is not None
    assert nodeclass.value is not None
    assert pool.value.nodeclass.name == nodeclass.value.name == "default"
    assert pool.value.labels["karpenter.sh/provisioner-name"] == "default"
    assert pool.value.expire_after == "Never"
    assert nodeclass.value.role == nodeclass.value.instance_profile == ""
    assert nodeclass.value.metadata_options.http_put_response_hop_limit == 2


def test_the_defaults_of_a_provisioner_are_stated() -> None:
    assert requirements(convert([provisioner()])) == {
        "kubernetes.io/os": ["linux"],
        "kubernetes.io/arch": ["amd64"],
        "karpenter.sh/capacity-type": ["on-demand"],
        "karpenter.k8s.aws/instance-category": ["c", "m", "r"],
        "karpenter.k8s.aws/instance-generation": ["2"],
    }


@pytest.mark.parametrize(
    "key",
    [
        "node.kubernetes.io/instance-type",
        "beta.kubernetes.io/instance-type",
        "karpenter.k8s.aws/instance-family",
        "karpenter.k8s.aws/instance-category",
        "karpenter.k8s.aws/instance-generation",
    ],
)
def test_a_provisioner_that_selects_types_gets_no_default_types(key: str) -> None:
    found = requirements(
        convert([provisioner(requirements=[{"key": key, "operator": "In", "values": ["5"]}])])
    )
    assert sum("instance" in key for key in found) == 1


def test_a_label_of_the_template_counts_as_a_requirement() -> None:
    found = requirements(convert([provisioner(labels={"kubernetes.io/arch": "arm64"})]))
    assert "kubernetes.io/arch" not in found


def test_the_mistaken_key_from_blog_posts_is_read_as_the_category() -> None:
    given = {"key": "karpenter.k8s.aws/instance-cpu", "operator": "In", "values": ["c", "m", "r"]}
    found = convert([provisioner(requirements=[given])])

    assert requirements(found)["karpenter.k8s.aws/instance-category"] == ["c", "m", "r"]
    assert "karpenter.k8s.aws/instance-generation" not in requirements(found), "it chooses types itself"
    (loudly,) = map(str, needing_attention(found.changes))
    where, _, how = loudly.partition(" karpenter.k8s.aws/instance-cpu ")
    assert where == "Provisioner/default: spec.requirements[0].key"
    assert how == "is read as karpenter.k8s.aws/instance-category"


MISTAKES = [
    ("karpenter.k8s.aws/instance.gpu.name", "a100", "karpenter.k8s.aws/instance-gpu-name", "a100"),
    ("karpenter.k8s.aws/instance.family", "m5", "karpenter.k8s.aws/instance-family", "m5"),
    ("node.kubernetes.io/instance-family", "m5", "karpenter.k8s.aws/instance-family", "m5"),
    ("node.kubernetes.io/instance-size", "large", "karpenter.k8s.aws/instance-size", "large"),
    ("karpenter.k8s.aws/instance-family", "m", "karpenter.k8s.aws/instance-category", "m"),
    ("karpenter.k8s.aws/instance-memory", "r", "karpenter.k8s.aws/instance-category", "r"),
    ("eks.amazonaws.com/instance-category", "m", "karpenter.k8s.aws/instance-category", "m"),
    (
        "eks.amazonaws.com/instance-gpu-manufacturer",
        "nvidia",
        "karpenter.k8s.aws/instance-gpu-manufacturer",
        "nvidia",
    ),
    ("eks.amazonaws.com/instance-hypervisor", "nitro", "karpenter.k8s.aws/instance-hypervisor", "nitro"),
    ("eks.amazonaws.com/capacityType", "ON_DEMAND", "karpenter.sh/capacity-type", "on-demand"),
    ("node.k8s.aws/capacity-type", "SPOT", "karpenter.sh/capacity-type", "spot"),
    ("karpenter.sh/capacity-type", "ON_DEMAND", "karpenter.sh/capacity-type", "on-demand"),
    ("karpenter.sh/capacity-type", "onDemand", "karpenter.sh/capacity-type", "on-demand"),
    ("kubernetes.io/arch", "x86_64", "kubernetes.io/arch", "amd64"),
    ("kubernetes.io/arch", "aarch64", "kubernetes.io/arch", "arm64"),
    ("kubernetes.io/os", "Linux", "kubernetes.io/os", "linux"),
]


@pytest.mark.parametrize(("key", "value", "meant", "meaning"), MISTAKES)
def test_a_mistake_with_a_certain_meaning_is_repaired_and_reported(
    key: str, value: str, meant: str, meaning: str
) -> None:
    given = [{"key": key, "operator": "In", "values": [value], "minValues": 1}]
    for pool in (provisioner(requirements=given), beta_pool(requirements=given), today(requirements=given)):
        found = convert([pool])
        first = made(found, "NodePool")["spec"]["template"]["spec"]["requirements"][0]
        assert first == {"key": meant, "operator": "In", "values": [meaning], "minValues": 1}
        assert len(said(found, FieldOutcome.REPAIRED)) == 1


@pytest.mark.parametrize(
    "nonsense",
    [
        {"template": {"spec": {"requirements": [], "nodeClassRef": {"name": "default", "kind": []}}}},
        {"disruption": {"consolidationPolicy": []}},
        {"disruption": {"expireAfter": []}},
        {"disruption": {"expireAfter": "1h"}, "template": {"spec": {"requirements": [], "expireAfter": {}}}},
    ],
    ids=["kind", "policy", "expiry", "today's expiry"],
)
def test_a_list_in_place_of_text_is_left_for_the_v1_parser_to_refuse(nonsense: dict[str, Any]) -> None:
    pool = {**beta_pool(), "spec": {**beta_pool()["spec"], **nonsense}}

    assert made(convert([pool]), "NodePool")["metadata"]["name"] == pool["metadata"]["name"]


def today(**template_spec: Any) -> dict[str, Any]:
    ref = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    return {**beta_pool(**{"nodeClassRef": ref, **template_spec}), "apiVersion": "karpenter.sh/v1"}


@pytest.mark.parametrize(
    "key", ["instance-pods", "instance-ami-id", "instance-accelerator-memory"], ids=lambda key: str(key)
)
def test_a_key_without_an_equivalent_is_refused_with_what_to_do_instead(key: str) -> None:
    found = convert([provisioner(requirements=[{"key": f"karpenter.k8s.aws/{key}", "operator": "Exists"}])])
    assert "no node has this label" in said(found, FieldOutcome.REFUSED)["spec.requirements[0].key"]


def test_a_label_of_auto_mode_without_an_equivalent_is_refused() -> None:
    found = convert(
        [provisioner(requirements=[{"key": "eks.amazonaws.com/instance-cpus", "operator": "Exists"}])]
    )
    why = said(found, FieldOutcome.REFUSED)["spec.requirements[0].key"]
    assert why.endswith("did you mean 'eks.amazonaws.com/instance-cpu'?")


@pytest.mark.parametrize("values", [["4", "c"], ["4"], ["xlarge"], ["m5"], []])
def test_values_that_may_be_right_are_left_unchanged(values: list[str]) -> None:
    given = [{"key": "karpenter.k8s.aws/instance-size", "operator": "In", "values": values}]
    assert not needing_attention(convert([provisioner(requirements=given)]).changes)


def test_outdated_keys_are_renamed_in_old_objects_only() -> None:
    given = [{"key": "beta.kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]
    old, new = convert([provisioner(requirements=given)]), convert([today(requirements=given)])

    assert "kubernetes.io/arch" in requirements(old)
    assert "beta.kubernetes.io/arch" in requirements(new), "v1 understands it as well"
    assert not needing_attention(old.changes) + new.changes


def test_a_current_object_that_needs_no_conversion_is_returned_itself() -> None:
    pool = today()
    found = convert([pool])
    assert found.objects[0].manifest is pool
    assert found.changes == ()


def test_v1beta1_fields_are_converted_in_objects_of_any_version() -> None:
    """A cluster stores both versions as one object, and shows it as v1."""
    pool = today(
        kubelet={"maxPods": 30}, nodeClassRef={"apiVersion": "karpenter.k8s.aws/v1beta1", "name": "default"}
    )
    pool["spec"]["disruption"] = {"consolidationPolicy": "WhenUnderutilized", "expireAfter": "24h"}
    pool["spec"]["template"]["spec"]["expireAfter"] = "720h"  # the API server's default
    found = convert([pool, {"kind": "EC2NodeClass", **NODE_CLASS}])
    spec = made(found, "NodePool")["spec"]

    assert spec["template"]["spec"]["expireAfter"] == "24h"
    assert spec["template"]["spec"]["nodeClassRef"]["group"] == "karpenter.k8s.aws"
    assert spec["disruption"] == {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s"}
    assert made(found, "EC2NodeClass")["spec"]["kubelet"] == {"maxPods": 30}


def test_the_v1beta1_policy_is_reported_in_a_v1_file_but_not_in_an_object_of_a_cluster() -> None:
    """Karpenter's v1 refuses it. nodesmith's CRD accepts it, since an object may have been written as v1beta1."""
    pool = today()
    pool["spec"]["disruption"] = {"consolidationPolicy": "WhenUnderutilized"}
    for metadata, outcome in (({}, FieldOutcome.REPAIRED), ({"uid": "u-1"}, FieldOutcome.MOVED)):
        found = convert([{**pool, "metadata": {**pool["metadata"], **metadata}}])
        assert (
            made(found, "NodePool")["spec"]["disruption"]["consolidationPolicy"] == "WhenEmptyOrUnderutilized"
        )
        assert "WhenEmptyOrUnderutilized" in said(found, outcome)["spec.disruption.consolidationPolicy"]


NODE_CLASS: dict[str, Any] = {
    "apiVersion": "karpenter.k8s.aws/v1",
    "metadata": {"name": "default"},
    "spec": {"role": "nodes", "amiSelectorTerms": [{"alias": "al2023@latest"}]},
}


def test_an_expiry_set_in_v1_takes_precedence_over_the_v1beta1_one() -> None:
    pool = today(expireAfter="48h")
    pool["spec"]["disruption"] = {"expireAfter": "24h"}
    found = convert([pool])

    assert made(found, "NodePool")["spec"]["template"]["spec"]["expireAfter"] == "48h"
    assert "takes precedence" in said(found, FieldOutcome.DROPPED)["spec.disruption.expireAfter"]


def test_two_nodepools_with_different_kubelet_settings_get_an_ec2nodeclass_each() -> None:
    pools = [
        provisioner(name, kubeletConfiguration={"maxPods": n})
        for name, n in (("a", 10), ("b", 20), ("c", 20))
    ]
    found = convert([*pools, provisioner("d"), template()])
    used = {
        name: made(found, "NodePool", name)["spec"]["template"]["spec"]["nodeClassRef"]["name"]
        for name in "abcd"
    }

    assert used == {"a": "default-a", "b": "default-b", "c": "default-b", "d": "default"}
    assert "kubelet" not in made(found, "EC2NodeClass")["spec"]
    assert made(found, "EC2NodeClass", "default-a")["spec"]["kubelet"] == {"maxPods": 10}
    assert made(found, "EC2NodeClass", "default-b")["spec"]["kubelet"] == {"maxPods": 20}
    assert made(found, "EC2NodeClass", "default-b")["spec"]["instanceProfile"] == "nodes"


def test_nodepools_with_equal_kubelet_settings_keep_one_ec2nodeclass() -> None:
    pools = [provisioner(name, kubeletConfiguration={"maxPods": 10}) for name in "ab"]
    found = convert([*pools, template()])
    assert made(found, "EC2NodeClass")["spec"]["kubelet"] == {"maxPods": 10}
    assert sum(each.manifest["kind"] == "EC2NodeClass" for each in found.objects) == 1


def test_pods_per_core_is_left_out_where_bottlerocket_has_no_such_setting() -> None:
    settings = {"podsPerCore": 4, "maxPods": 30}
    found = convert([template(amiFamily="Bottlerocket"), provisioner(kubeletConfiguration=settings)])
    assert made(found, "EC2NodeClass")["spec"]["kubelet"] == {"maxPods": 30}
    reported = said(found, FieldOutcome.DROPPED)["spec.kubeletConfiguration.podsPerCore"]
    assert "Bottlerocket has no such setting, and Karpenter ignored it; use maxPods" in reported
    others = convert([template(amiFamily="AL2023"), provisioner(kubeletConfiguration=settings)])
    assert made(others, "EC2NodeClass")["spec"]["kubelet"] == settings


def test_kubelet_settings_without_their_ec2nodeclass_are_reported_as_lost() -> None:
    found = convert([provisioner(kubeletConfiguration={"maxPods": 10})])
    assert "convert both together" in said(found, FieldOutcome.DROPPED)["spec.kubeletConfiguration"]


def test_a_current_object_takes_precedence_over_an_old_one_of_the_same_name() -> None:
    found = convert([provisioner(), template(), today(), {"kind": "EC2NodeClass", **NODE_CLASS}])

    assert [each.number for each in found.objects] == [2, 3]
    assert [c.object for c in found.changes if c.outcome is FieldOutcome.DROPPED] == [
        "Provisioner/default",
        "AWSNodeTemplate/default",
    ]


def test_an_ec2nodeclass_made_from_a_provisioner_gets_a_free_name() -> None:
    found = convert([yaml.safe_load(PROVISIONER), template()])
    assert made(found, "EC2NodeClass", "default-provider")["metadata"]["annotations"] == {
        DEFAULT_ROLE: "true"
    }
    ref = made(found, "NodePool")["spec"]["template"]["spec"]["nodeClassRef"]
    assert ref["name"] == "default-provider"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"providerRef": {"name": "default"}, "provider": {}}, "spec.provider"),
        ({"providerRef": None}, "spec.providerRef"),
        ({"consolidation": {"enabled": True}, "ttlSecondsAfterEmpty": 30}, "spec.ttlSecondsAfterEmpty"),
        ({"consolidation": {"enabled": "true"}}, "spec.consolidation.enabled"),
    ],
)
def test_a_field_that_needs_a_decision_is_refused(fields: dict[str, Any], field: str) -> None:
    assert field in said(convert([provisioner(**fields)]), FieldOutcome.REFUSED)


def test_an_unknown_field_is_reported_with_a_suggestion() -> None:
    found = convert([provisioner(ttlSecondAfterEmpty=30), template(subnetSelectr={})])
    assert (
        "did you mean 'ttlSecondsAfterEmpty'" in said(found, FieldOutcome.DROPPED)["spec.ttlSecondAfterEmpty"]
    )
    assert "did you mean 'subnetSelector'" in said(found, FieldOutcome.DROPPED)["spec.subnetSelectr"]


def test_values_of_a_selector_are_alternatives_but_its_keys_are_not() -> None:
    found = convert([template(subnetSelector={"zone": "a, b", "team": "blue,red", "any": ""})])
    terms = [each["tags"] for each in made(found, "EC2NodeClass")["spec"]["subnetSelectorTerms"]]
    assert terms == [{"zone": z, "team": t, "any": "*"} for z in "ab" for t in ("blue", "red")]


def test_images_are_chosen_by_owner_name_and_tags_together() -> None:
    found = convert(
        [template(amiSelector={"aws::owners": "self,123456789012", "aws::name": "eks-*", "team": "blue"})]
    )
    spec = made(found, "EC2NodeClass")["spec"]
    terms = spec["amiSelectorTerms"]
    assert terms == [
        {"owner": o, "name": "eks-*", "tags": {"team": "blue"}} for o in ("self", "123456789012")
    ]
    assert spec["amiFamily"] == "AL2", "was the default, and says how user data is made"


def test_more_alternatives_than_the_maximum_number_of_terms_are_refused() -> None:
    many = ",".join(map(str, range(6)))
    found = convert([template(subnetSelector={"a": many, "b": many})])
    assert "fewer alternatives" in said(found, FieldOutcome.REFUSED)["spec.subnetSelector"]


@pytest.mark.parametrize(
    ("fields", "kubernetes", "alias"),
    [
        ({}, "", "al2023@latest"),
        ({}, "1.33", "al2023@latest"),
        ({}, "1.32", "al2@latest"),
        ({"amiFamily": "AL2"}, "1.27", "al2@latest"),
        ({"amiFamily": "AL2"}, "", "al2023@latest"),
        ({"amiFamily": "Windows2022"}, "", "windows2022@latest"),
    ],
)
def test_a_family_without_a_selector_becomes_its_alias(
    fields: dict[str, Any], kubernetes: str, alias: str
) -> None:
    found = convert([template(**fields)], InstallationSettings(kubernetes=kubernetes))
    assert made(found, "EC2NodeClass")["spec"]["amiSelectorTerms"] == [{"alias": alias}]
    assert ("Amazon Linux 2023" in " ".join(map(str, needing_attention(found.changes)))) == (
        alias == "al2023@latest"
    )


def test_ubuntu_uses_user_data_like_al2_and_needs_selected_images() -> None:
    found = convert([template(amiFamily="Ubuntu")])
    spec = made(found, "EC2NodeClass")["spec"]
    assert spec["amiFamily"] == "AL2"
    assert spec["blockDeviceMappings"][0]["ebs"]["volumeSize"] == "20Gi"
    assert "ssmParameter" in said(found, FieldOutcome.REFUSED)["spec.amiFamily"]
    selected = convert([template(amiFamily="Ubuntu", amiSelector={"aws-ids": "ami-1"})])
    assert not said(selected, FieldOutcome.REFUSED)


def test_ubuntu_without_selected_images_stays_refused_in_the_file_that_convert_writes() -> None:
    files = InstallationSettings(for_files=True)
    written = made(convert([template(amiFamily="Ubuntu")], files), "EC2NodeClass")
    again = convert([written])
    assert "nothing selects its images" in said(again, FieldOutcome.REFUSED)["spec.amiFamily"]
    selected = convert([template(amiFamily="Ubuntu", amiSelector={"aws-ids": "ami-1"})], files)
    assert made(selected, "EC2NodeClass")["spec"]["amiFamily"] == "AL2"


def test_the_images_of_a_class_keep_their_pinned_version() -> None:
    pinned = {"compatibility.karpenter.k8s.aws/v1-alias-version": "v20240101"}
    nodeclass = {
        "apiVersion": "karpenter.k8s.aws/v1beta1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default", "annotations": pinned},
        "spec": {"amiFamily": "AL2023"},
    }
    assert made(convert([nodeclass]), "EC2NodeClass")["spec"]["amiSelectorTerms"] == [
        {"alias": "al2023@v20240101"}
    ]


def test_each_class_gets_the_instance_profile_of_the_installation() -> None:
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "karpenter-global-settings"},
        "data": {"aws.defaultInstanceProfile": "profile-of-all"},
    }
    lacks = template(instanceProfile=None)
    assert made(convert([lacks, settings]), "EC2NodeClass")["spec"]["instanceProfile"] == "profile-of-all"
    reported = convert([lacks], InstallationSettings(role="role-of-all"))
    assert made(reported, "EC2NodeClass")["spec"]["role"] == "role-of-all"
    assert not [c for c in needing_attention(reported.changes) if "instanceProfile" in c.field]


def test_a_class_that_names_no_role_gets_the_clusters_first_node_role() -> None:
    found = convert([template(instanceProfile=None)])

    nodeclass = parse_nodeclass(made(found, "EC2NodeClass"))
    assert nodeclass.problems == ()
    assert nodeclass.value is not None
    assert (nodeclass.value.role, nodeclass.value.instance_profile) == ("", "")
    assert "the cluster's first node role" in said(found, FieldOutcome.ALTERED)["spec.instanceProfile"]


def test_a_file_gets_the_role_of_karpenters_guide_or_asks_its_author() -> None:
    files = InstallationSettings(for_files=True)
    guided = convert([template(instanceProfile=None)], files)
    assert made(guided, "EC2NodeClass")["spec"]["role"] == "KarpenterNodeRole-blue"

    unguided = convert([template(instanceProfile=None, subnetSelector={"team": "search"})], files)
    assert "set it here" in said(unguided, FieldOutcome.REFUSED)["spec.instanceProfile"]


def test_limits_in_the_form_of_the_other_kind_are_repaired() -> None:
    flat, deep = provisioner(limits={"cpu": 10}), today()
    deep["spec"]["limits"] = {"resources": {"cpu": 10}}
    for pool in (flat, deep):
        found = convert([pool])
        assert made(found, "NodePool")["spec"]["limits"] == {"cpu": 10}
        assert said(found, FieldOutcome.REPAIRED)


def test_the_last_applied_annotation_of_kubectl_is_dropped() -> None:
    pool = provisioner()
    pool["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "a": "b"}
    assert made(convert([pool]), "NodePool")["metadata"]["annotations"] == {
        "a": "b",
        "nodesmith.dev/provisioner": "default",
    }


def test_workloads_are_converted_on_request_only() -> None:
    spec = {
        "nodeSelector": {
            "karpenter.sh/provisioner-name": "default",
            "eks.amazonaws.com/capacityType": "SPOT",
        },
        "topologySpreadConstraints": [
            {"topologyKey": "failure-domain.beta.kubernetes.io/zone", "maxSkew": 1}
        ],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "beta.kubernetes.io/arch", "operator": "Exists"}]}
                    ]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "preference": {
                            "matchExpressions": [
                                {"key": "node.k8s.aws/capacity-type", "operator": "In", "values": ["SPOT"]}
                            ]
                        },
                    }
                ],
            },
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "podAffinityTerm": {"topologyKey": "failure-domain.beta.kubernetes.io/zone"},
                    }
                ]
            },
        },
    }
    annotations = {"karpenter.sh/do-not-evict": "true"}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a"},
        "spec": {"template": {"metadata": {"annotations": annotations}, "spec": spec}},
    }
    assert convert([deployment]).objects[0].manifest is deployment
    pod = convert([deployment], workloads=True).objects[0].manifest["spec"]["template"]

    assert pod["metadata"]["annotations"] == {"karpenter.sh/do-not-disrupt": "true"}
    assert pod["spec"]["nodeSelector"] == {
        "karpenter.sh/nodepool": "default",
        "karpenter.sh/capacity-type": "spot",
    }
    zone = {"topologyKey": "topology.kubernetes.io/zone"}
    assert pod["spec"]["topologySpreadConstraints"] == [{**zone, "maxSkew": 1}]
    affinity = pod["spec"]["affinity"]
    required = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert required == [{"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "Exists"}]}]
    preferred = affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred[0]["preference"]["matchExpressions"] == [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}
    ]
    apart = affinity["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert apart == [{"weight": 1, "podAffinityTerm": zone}]


def test_an_item_of_a_converted_list_has_the_origin_of_the_old_item() -> None:
    pool = next(o for o in convert([yaml.safe_load(PROVISIONER)]).objects if o.manifest["kind"] == "NodePool")
    assert pool.origin("spec.template.spec.requirements[0].key") == Origin(0, "spec.requirements[0].key")
    assert pool.origin("metadata.name") == Origin(0, "metadata.name")
    assert pool.origin("spec.template.spec.expireAfter") is None


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"ttlSecondsAfterEmpty": "30"}, "spec.ttlSecondsAfterEmpty"),
        ({"ttlSecondsUntilExpired": "30"}, "spec.ttlSecondsUntilExpired"),
    ],
)
def test_seconds_in_quotes_are_read_as_a_number(fields: dict[str, Any], field: str) -> None:
    found = convert([provisioner(**fields)])
    spec = made(found, "NodePool")["spec"]
    assert "30s" in {spec["disruption"]["consolidateAfter"], spec["template"]["spec"]["expireAfter"]}
    assert said(found, FieldOutcome.REPAIRED)[field] == "is text, and is read as the number 30"


@pytest.mark.parametrize("seconds", ["soon", "3e1", "", -1, 1.5, True])
def test_invalid_seconds_are_refused_by_field(seconds: object) -> None:
    found = convert([provisioner(ttlSecondsAfterEmpty=seconds)])
    assert "whole number of seconds" in said(found, FieldOutcome.REFUSED)["spec.ttlSecondsAfterEmpty"]


def test_a_list_in_a_selector_is_read_as_alternatives() -> None:
    found = convert([template(subnetSelector={"team": ["blue", "red"]})])
    terms = made(found, "EC2NodeClass")["spec"]["subnetSelectorTerms"]
    assert terms == [{"tags": {"team": "blue"}}, {"tags": {"team": "red"}}]
    assert (
        said(found, FieldOutcome.REPAIRED)["spec.subnetSelector[team]"]
        == "is a list, and is read as blue,red"
    )


@pytest.mark.parametrize("selector", [{"team": 1}, {"team": []}, "blue", [{"team": "blue"}]])
def test_a_selector_that_is_not_a_map_of_text_is_refused(selector: object) -> None:
    found = convert([template(subnetSelector=selector)])
    assert "must be a map of text" in said(found, FieldOutcome.REFUSED)["spec.subnetSelector"]


def test_a_missing_selector_is_reported_by_its_old_name() -> None:
    spec = {name: value for name, value in template()["spec"].items() if name != "securityGroupSelector"}
    found = convert([{**template(), "spec": spec}])
    assert "the security groups" in said(found, FieldOutcome.REFUSED)["spec.securityGroupSelector"]
    (nodeclass,) = found.objects
    assert nodeclass.origin("spec.securityGroupSelectorTerms") == (0, "spec.securityGroupSelector")


def test_an_ami_family_in_another_case_is_recognised() -> None:
    found = convert([template(amiFamily="bottleRocket")])
    assert made(found, "EC2NodeClass")["spec"]["amiSelectorTerms"] == [{"alias": "bottlerocket@latest"}]
    assert (
        said(found, FieldOutcome.REPAIRED)["spec.amiFamily"] == "is bottleRocket, and is read as Bottlerocket"
    )


@pytest.mark.parametrize(
    ("disruption", "after"),
    [
        ({"expireAfter": "24h"}, "0s"),
        ({"consolidationPolicy": "WhenUnderutilized"}, "0s"),
        ({"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s"}, "30s"),
    ],
)
def test_consolidate_after_is_always_stated_since_v1_requires_it(
    disruption: dict[str, Any], after: str
) -> None:
    pool = beta_pool()
    pool["spec"]["disruption"] = disruption
    assert made(convert([pool]), "NodePool")["spec"]["disruption"]["consolidateAfter"] == after


def test_a_toleration_of_the_old_disruption_taint_becomes_one_of_the_current_taint() -> None:
    old = {
        "key": "karpenter.sh/disruption",
        "operator": "Equal",
        "value": "disrupting",
        "effect": "NoSchedule",
    }
    other = {"key": "dedicated", "operator": "Exists"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"tolerations": [other, old]},
    }
    found = convert([pod], workloads=True)
    assert found.objects[0].manifest["spec"]["tolerations"] == [
        other,
        {"key": "karpenter.sh/disrupted", "operator": "Exists", "effect": "NoSchedule"},
    ]
    assert [change.field for change in found.changes] == ["spec.tolerations[1]"]
