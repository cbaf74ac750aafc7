from __future__ import annotations

from dataclasses import fields

import pytest

from nodesmith import keys
from nodesmith.errors import Rejected
from nodesmith.model.policies import SYSTEM_SPREADS, MinValuesPolicy, NodeSettings, PreferencePolicy
from nodesmith.settings import Settings, read_settings


def test_the_region_alone_is_enough_and_everything_else_has_a_default() -> None:
    read = read_settings({"AWS_REGION": "eu-west-1", "PATH": "/bin"})

    assert read == Settings(region="eu-west-1")
    assert (read.vm_memory_overhead_percent, read.reserved_enis, read.prefix_delegation) == (0.075, 0, False)


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("CLUSTER_NAME", "shop", "cluster_name", "shop"),
        ("ISOLATED_VPC", "True", "isolated_vpc", True),
        ("PREFIX_DELEGATION", "false", "prefix_delegation", False),
        ("WINDOWS_PREFIX_DELEGATION", "true", "windows_prefix_delegation", True),
        ("VM_MEMORY_OVERHEAD_PERCENT", "0", "vm_memory_overhead_percent", 0.0),
        ("VM_MEMORY_OVERHEAD_PERCENT", "0.05", "vm_memory_overhead_percent", 0.05),
        ("RESERVED_ENIS", "2", "reserved_enis", 2),
        ("RESERVED_ENIS", "", "reserved_enis", 0),
        ("PREFERENCE_POLICY", "Ignore", "preference_policy", PreferencePolicy.IGNORE),
        ("MIN_VALUES_POLICY", "BestEffort", "min_values_policy", MinValuesPolicy.BEST_EFFORT),
        ("SCHEDULER_CONFIG", "System", "default_spreads", SYSTEM_SPREADS),
    ],
)
def test_a_setting_is_read_from_its_variable(variable: str, text: str, name: str, value: object) -> None:
    assert getattr(read_settings({"AWS_REGION": "eu-west-1", variable: text}), name) == value


@pytest.mark.parametrize(
    ("variable", "text", "said"),
    [
        ("ISOLATED_VPC", "yes", "must be true or false"),
        ("VM_MEMORY_OVERHEAD_PERCENT", "7.5", "must be at least 0 and less than 1"),
        ("VM_MEMORY_OVERHEAD_PERCENT", "nan", "must be at least 0 and less than 1"),
        ("RESERVED_ENIS", "-1", "must not be negative"),
        ("RESERVED_ENIS", "two", "invalid literal"),
        ("PREFERENCE_POLICY", "respect", "must be Respect or Ignore"),
        ("MIN_VALUES_POLICY", "Loose", "must be Strict or BestEffort"),
        ("SCHEDULER_CONFIG", "system", "must be List, System or JSON"),
    ],
)
def test_an_invalid_value_is_rejected_with_variable_and_meaning(variable: str, text: str, said: str) -> None:
    with pytest.raises(Rejected, match=f"{variable}='{text}': {said}") as rejected:
        read_settings({"AWS_REGION": "eu-west-1", variable: text})
    meaning = next(f.metadata["meaning"] for f in fields(Settings) if f.metadata["env"] == variable)
    assert meaning in str(rejected.value)


def test_scheduling_settings_default_to_karpenters() -> None:
    read, usual = Settings("r"), NodeSettings()

    assert (read.preference_policy, read.min_values_policy) == (
        PreferencePolicy.RESPECT,
        MinValuesPolicy.STRICT,
    )
    assert (usual.preference_policy, usual.min_values_policy) == (
        read.preference_policy,
        read.min_values_policy,
    )
    assert read.default_spreads == usual.default_spreads == ()


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(Rejected, match=r"AWS_REGION is not set .*RESERVED_ENIS='x'"):
        read_settings({"RESERVED_ENIS": "x"})


def test_clusters_have_different_keys() -> None:
    for key in (keys.snapshot_key, keys.partition_key):
        assert key("a") != key("b")
    assert keys.decision_key("a", "1") != keys.decision_snapshot_key("a", "1")
    assert keys.decision_key("a", "1").startswith("clusters/a/")
