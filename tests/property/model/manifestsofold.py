"""Strategies for valid objects of every API version."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Strategy = st.SearchStrategy[Any]
NAMES = st.sampled_from(["default", "gpu", "spot"])
WORDS = st.sampled_from(["blue", "red", "a-b", "x"])
TAGS = st.dictionaries(
    st.sampled_from(["team", "Name", "karpenter.sh/discovery"]), WORDS, min_size=1, max_size=2
)
LABELS = st.dictionaries(st.sampled_from(["example.com/team", "tier"]), WORDS, max_size=2)
_EFFECTS = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
TAINTS = st.lists(
    st.fixed_dictionaries(
        {"key": st.sampled_from(["a", "example.com/b"]), "effect": _EFFECTS}, optional={"value": WORDS}
    ),
    max_size=2,
    unique_by=lambda taint: (taint["key"], taint["effect"]),
)
_CHOICES = {
    "karpenter.sh/capacity-type": ["spot", "on-demand"],
    "kubernetes.io/arch": ["amd64", "arm64"],
    "topology.kubernetes.io/zone": ["us-east-1a", "us-east-1b"],
    "karpenter.k8s.aws/instance-category": ["c", "m", "r"],
    "karpenter.k8s.aws/instance-family": ["m5", "c6g"],
    "karpenter.k8s.aws/instance-size": ["large", "xlarge"],
    "node.kubernetes.io/instance-type": ["m5.large", "t3.micro"],
    "example.com/own": ["blue", "red"],
}


@st.composite
def requirement(draw: st.DrawFn) -> dict[str, Any]:
    key = draw(st.sampled_from(sorted(_CHOICES)))
    operator = draw(st.sampled_from(["In", "NotIn", "Exists", "Gt", "Lt"]))
    if operator == "Exists":
        return {"key": key, "operator": operator}
    if operator in {"Gt", "Lt"}:
        return {
            "key": "karpenter.k8s.aws/instance-cpu",
            "operator": operator,
            "values": [str(draw(st.integers(0, 200)))],
        }
    values = draw(st.lists(st.sampled_from(_CHOICES[key]), min_size=1, max_size=3, unique=True))
    return {"key": key, "operator": operator, "values": values}


REQUIREMENTS = st.lists(requirement(), max_size=4)
KUBELET = st.fixed_dictionaries(
    {},
    optional={
        "maxPods": st.integers(0, 250),
        "podsPerCore": st.integers(0, 20),
        "clusterDNS": st.just(["10.0.0.10"]),
    },
)
_SECONDS = st.integers(0, 10**6)
_QUANTITIES = st.sampled_from([1, 1000, "10", "2Gi", "500m"])
LIMITS = st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), _QUANTITIES, max_size=2)
_DURATIONS = st.sampled_from(["Never", "24h", "1h30m", "720h"])
_BUDGETS = st.lists(
    st.fixed_dictionaries({"nodes": st.sampled_from(["10%", "0", "5"])})
    | st.just({"nodes": "0", "schedule": "@daily", "duration": "8h"}),
    max_size=2,
)


def _object(api_version: str, kind: str, spec: Strategy, name: Strategy = NAMES) -> Strategy:
    metadata = st.fixed_dictionaries({"name": name}, optional={"labels": LABELS})
    parts = {"apiVersion": st.just(api_version), "kind": st.just(kind), "metadata": metadata, "spec": spec}
    return st.fixed_dictionaries(parts)


_AWS = {
    "userData": st.text(max_size=20),
    "tags": st.dictionaries(st.sampled_from(["team", "Name"]), WORDS, max_size=2),
    "detailedMonitoring": st.booleans(),
    "context": WORDS,
    "blockDeviceMappings": st.just(
        [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "100Gi", "volumeType": "gp3"}}]
    ),
    "metadataOptions": st.fixed_dictionaries({"httpTokens": st.sampled_from(["required", "optional"])}),
}
_TEMPLATE_FIELDS = {
    **_AWS,
    "amiFamily": st.sampled_from(["AL2", "Bottlerocket", "Windows2022"]),
    "amiSelector": st.fixed_dictionaries({"aws-ids": st.sampled_from(["ami-1", "ami-1,ami-2"])}),
}
_TEMPLATE_SPEC = st.fixed_dictionaries(
    {"subnetSelector": TAGS, "securityGroupSelector": TAGS, "instanceProfile": WORDS},
    optional=_TEMPLATE_FIELDS,
)


@st.composite
def _provisioner_spec(draw: st.DrawFn) -> dict[str, Any]:
    optional = {
        "labels": LABELS,
        "annotations": LABELS,
        "taints": TAINTS,
        "requirements": REQUIREMENTS,
        "kubeletConfiguration": KUBELET,
        "ttlSecondsUntilExpired": _SECONDS,
        "limits": st.fixed_dictionaries({"resources": LIMITS}),
        "weight": st.integers(1, 100),
    }
    spec: dict[str, Any] = draw(st.fixed_dictionaries({}, optional=optional))
    spec |= draw(
        st.fixed_dictionaries({}, optional={"ttlSecondsAfterEmpty": _SECONDS})
        | st.fixed_dictionaries({"consolidation": st.fixed_dictionaries({"enabled": st.booleans()})})
    )
    aws = st.fixed_dictionaries({"providerRef": st.fixed_dictionaries({"name": NAMES})})
    return spec | draw(aws | st.fixed_dictionaries({"provider": _TEMPLATE_SPEC}))


_OLD_REF = st.fixed_dictionaries(
    {"name": NAMES}, optional={"apiVersion": st.just("karpenter.k8s.aws/v1beta1")}
)
_BETA_DISRUPTION = st.fixed_dictionaries(
    {},
    optional={
        "consolidationPolicy": st.sampled_from(["WhenEmpty", "WhenUnderutilized"]),
        "expireAfter": _DURATIONS,
        "budgets": _BUDGETS,
    },
)


def _pool_spec(ref: Strategy, disruption: Strategy, more: dict[str, Strategy]) -> Strategy:
    template = st.fixed_dictionaries(
        {
            "spec": st.fixed_dictionaries(
                {"nodeClassRef": ref, "requirements": REQUIREMENTS}, optional={"taints": TAINTS, **more}
            )
        },
        optional={"metadata": st.fixed_dictionaries({}, optional={"labels": LABELS})},
    )
    optional = {"limits": LIMITS, "weight": st.integers(1, 100), "disruption": disruption}
    return st.fixed_dictionaries({"template": template}, optional=optional)


_TERMS = st.lists(st.fixed_dictionaries({"tags": TAGS}), min_size=1, max_size=2)
_SELECTED = {"subnetSelectorTerms": _TERMS, "securityGroupSelectorTerms": _TERMS, "role": WORDS}
_BETA_CLASS = st.fixed_dictionaries(
    {**_SELECTED, "amiFamily": st.sampled_from(["AL2", "AL2023", "Bottlerocket"])},
    optional={**_AWS, "amiSelectorTerms": st.just([{"id": "ami-1"}])},
)
_REF = st.fixed_dictionaries(
    {"group": st.just("karpenter.k8s.aws"), "kind": st.just("EC2NodeClass"), "name": NAMES}
)
_DISRUPTION = st.fixed_dictionaries(
    {"consolidateAfter": _DURATIONS},
    optional={
        "consolidationPolicy": st.sampled_from(["WhenEmpty", "WhenEmptyOrUnderutilized"]),
        "budgets": _BUDGETS,
    },
)
_CLASS = st.fixed_dictionaries(
    {**_SELECTED, "amiSelectorTerms": st.just([{"alias": "al2023@latest"}])},
    optional={**_AWS, "kubelet": KUBELET},
)


def old_objects() -> Strategy:
    """Draw Provisioners, AWSNodeTemplates and both kinds of v1beta1."""
    return st.one_of(
        _object("karpenter.sh/v1alpha5", "Provisioner", _provisioner_spec()),
        _object("karpenter.k8s.aws/v1alpha1", "AWSNodeTemplate", _TEMPLATE_SPEC),
        _object(
            "karpenter.sh/v1beta1", "NodePool", _pool_spec(_OLD_REF, _BETA_DISRUPTION, {"kubelet": KUBELET})
        ),
        _object("karpenter.k8s.aws/v1beta1", "EC2NodeClass", _BETA_CLASS),
    )


def todays_objects() -> Strategy:
    """Draw NodePools, NodeClaims and EC2NodeClasses of v1."""
    life = {"expireAfter": _DURATIONS, "terminationGracePeriod": st.sampled_from(["1h", "30m"])}
    claim = st.fixed_dictionaries(
        {"nodeClassRef": _REF, "requirements": REQUIREMENTS}, optional={"taints": TAINTS, **life}
    )
    return st.one_of(
        _object("karpenter.sh/v1", "NodePool", _pool_spec(_REF, _DISRUPTION, life)),
        _object("karpenter.sh/v1", "NodeClaim", claim),
        _object("karpenter.k8s.aws/v1", "EC2NodeClass", _CLASS),
    )
