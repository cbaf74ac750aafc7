import pytest

from nodesmith.model.apimachinery.labels import (
    WELL_KNOWN,
    in_domain,
    kubelet_may_set,
    normalised,
    restriction,
)
from nodesmith.model.apimachinery.problems import did_you_mean


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
        ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
        ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
        ("beta.kubernetes.io/os", "kubernetes.io/os"),
        ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
        ("topology.ebs.csi.aws.com/zone", "topology.kubernetes.io/zone"),
        ("example.com/zone", "example.com/zone"),
    ],
)
def test_old_keys_are_read_as_current_ones(old: str, new: str) -> None:
    assert normalised(old) == new


@pytest.mark.parametrize(
    ("key", "domain", "belongs"),
    [
        ("karpenter.sh/nodepool", "karpenter.sh", True),
        ("a.karpenter.sh/x", "karpenter.sh", True),
        ("notkarpenter.sh/x", "karpenter.sh", False),
        ("karpenter.sh", "karpenter.sh", False),
        ("karpenter.sh.example.com/x", "karpenter.sh", False),
    ],
)
def test_a_domain_includes_its_own_keys_and_those_of_its_sub_domains(
    key: str, domain: str, belongs: bool
) -> None:
    assert in_domain(key, domain) is belongs


@pytest.mark.parametrize("key", sorted(WELL_KNOWN))
def test_well_known_keys_are_free_to_use(key: str) -> None:
    assert restriction(key) is None


@pytest.mark.parametrize(
    "key", ["example.com/team", "team", "node.kubernetes.io/foo", "beta.kubernetes.io/arch"]
)
def test_keys_of_other_domains_are_free_to_use(key: str) -> None:
    assert restriction(key) is None


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("kubernetes.io/hostname", "kubernetes.io/hostname is set by the node itself: leave it out"),
        ("karpenter.sh/initialized", "the domain karpenter.sh is reserved"),
        ("a.karpenter.sh/x", "the domain karpenter.sh is reserved"),
        (
            "karpenter.k8s.aws/instance-familly",
            "the domain karpenter.k8s.aws is reserved, did you mean 'karpenter.k8s.aws/instance-family'?",
        ),
    ],
)
def test_reserved_keys_are_refused_with_the_reason(key: str, why: str) -> None:
    assert (restriction(key) or "").startswith(why)


@pytest.mark.parametrize(
    ("key", "may"),
    [
        ("karpenter.sh/nodepool", True),
        ("example.com/team", True),
        ("kubernetes.io/arch", False),
        ("node.kubernetes.io/instance-type", False),
        ("topology.k8s.aws/zone-id", True),
        ("node-restriction.kubernetes.io/x", False),
    ],
)
def test_the_kubelet_may_not_set_labels_of_kubernetes_own_domains(key: str, may: bool) -> None:
    assert kubelet_may_set(key) is may


def test_the_closest_known_word_is_suggested_if_it_is_close_enough() -> None:
    assert did_you_mean("Inn", ("In", "NotIn")) == ", did you mean 'In'?"
    assert did_you_mean("Sometimes", ("In", "NotIn")) == ""
    assert did_you_mean("x" * 1_000_000, ("x" * 1_000_000,)) == ""


@pytest.mark.parametrize(
    "key",
    [
        "kubernetes.io/foo",
        "kubernetes.io/role",
        "topology.kubernetes.io/rack",
        "app.kubernetes.io/name",
        "node.kubernetes.io/lifecycle",
    ],
)
def test_no_label_is_suggested_that_shares_only_its_domain(key: str) -> None:
    assert did_you_mean(key, WELL_KNOWN) == ""


@pytest.mark.parametrize(
    ("key", "label"),
    [
        ("kubernetes.io/archs", "kubernetes.io/arch"),
        ("kubernetes.io/architecture", "kubernetes.io/arch"),
        ("kubernetes.io/zone", "topology.kubernetes.io/zone"),
        ("node.kubernetes.io/instancetype", "node.kubernetes.io/instance-type"),
        ("karpenter.k8s.was/instance-family", "karpenter.k8s.aws/instance-family"),
    ],
)
def test_a_label_with_a_similar_name_is_suggested(key: str, label: str) -> None:
    assert did_you_mean(key, WELL_KNOWN) == f", did you mean {label!r}?"
