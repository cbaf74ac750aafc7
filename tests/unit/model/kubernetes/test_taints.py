import pytest

from nodesmith.model.apimachinery.labels import (
    DISRUPTED,
    UNREGISTERED,
    Taint,
    Toleration,
    common,
    first_untolerated,
    is_ephemeral,
)

TAINT = Taint("example.com/gpu", "NoSchedule", "true")


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        (Toleration("example.com/gpu", "Equal", "true", "NoSchedule"), True),
        (Toleration("example.com/gpu", "Equal", "true"), True),
        (Toleration("example.com/gpu", "", "true"), True),
        (Toleration("example.com/gpu", "Equal", "false"), False),
        (Toleration("example.com/gpu", "Exists"), True),
        (Toleration("example.com/gpu", "Exists", effect="NoExecute"), False),
        (Toleration("example.com/other", "Exists"), False),
        (Toleration("", "Exists"), True),
        (Toleration("", "Equal", "true"), False),
        (Toleration("example.com/gpu", "Resembles", "true"), False),
    ],
)
def test_a_toleration_covers_a_taint_by_key_value_and_effect(toleration: Toleration, tolerates: bool) -> None:
    assert toleration.tolerates(TAINT) is tolerates


@pytest.mark.parametrize(
    ("operator", "bound", "found", "tolerates"),
    [
        ("Gt", "5", "6", True),
        ("Gt", "5", "5", False),
        ("Lt", "5", "4", True),
        ("Lt", "5", "5", False),
        ("Gt", "five", "6", False),
        ("Lt", "5", "", False),
    ],
)
def test_a_toleration_may_compare_integers(operator: str, bound: str, found: str, tolerates: bool) -> None:
    taint = Taint("example.com/level", "NoSchedule", found)
    assert Toleration("example.com/level", operator, bound).tolerates(taint) is tolerates


def test_the_first_untolerated_taint_is_returned_and_preferences_do_not_count() -> None:
    soft = Taint("example.com/soft", "PreferNoSchedule")
    assert first_untolerated([soft, TAINT, DISRUPTED], []) == TAINT
    assert first_untolerated([soft, TAINT], [Toleration("", "Exists")]) is None


@pytest.mark.parametrize(
    ("taint", "sheds"),
    [
        (Taint("node.kubernetes.io/not-ready", "NoSchedule"), True),
        (Taint("node.kubernetes.io/not-ready", "NoExecute"), True),
        (Taint("node.kubernetes.io/unreachable", "NoSchedule"), True),
        (Taint("node.kubernetes.io/unreachable", "NoExecute"), False),
        (Taint("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule", "true"), True),
        (UNREGISTERED, True),
        (Taint("readiness.k8s.io/network", "NoSchedule"), True),
        (DISRUPTED, False),
        (TAINT, False),
    ],
)
def test_ephemeral_taints_of_starting_nodes_are_recognised(taint: Taint, sheds: bool) -> None:
    assert is_ephemeral(taint) is sheds


def test_a_taint_is_formatted_as_in_kubectl() -> None:
    assert str(TAINT) == "example.com/gpu=true:NoSchedule"
    assert str(DISRUPTED) == "karpenter.sh/disrupted:NoSchedule"


ALL, KEY = Toleration(operator="Exists"), Toleration("dedicated", "Exists")
WEB, WEB_NOW = Toleration("dedicated", value="web"), Toleration("dedicated", value="web", effect="NoExecute")


@pytest.mark.parametrize(
    ("some", "others", "both"),
    [
        ((ALL,), (KEY,), (KEY,)),
        ((WEB,), (ALL,), (WEB,)),
        ((KEY,), (WEB, WEB_NOW), (WEB, WEB_NOW)),
        ((WEB_NOW,), (WEB,), (WEB_NOW,)),
        ((WEB,), (Toleration("dedicated", value="batch"),), ()),
        ((WEB,), (), ()),
    ],
)
def test_common_tolerations_are_those_that_both_pods_have(
    some: tuple[Toleration, ...], others: tuple[Toleration, ...], both: tuple[Toleration, ...]
) -> None:
    assert common(some, others) == both
    assert set(common(others, some)) == set(both)
