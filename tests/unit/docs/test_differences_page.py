"""The page of differences gives few, each with its reason, and names every option of Karpenter that is lacking here."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[3]
DIFFERENCES, PAGE = (ROOT / "docs/differences.md").read_text().split("## Options and feature gates")
ROWS = [line for line in DIFFERENCES.splitlines() if line.startswith("| ") and not line.startswith("| |")]
MOST = 28
"""A new one has to make another unnecessary."""
OPTIONS = """
AMI_REFRESH_INTERVAL AWS_FEATURE_GATES BATCH_IDLE_DURATION BATCH_MAX_DURATION CLUSTER_CA_BUNDLE CLUSTER_ENDPOINT
CLUSTER_NAME CPU_REQUESTS DISABLE_CLUSTER_STATE_OBSERVABILITY DISABLE_CONTROLLER_WARMUP DISABLE_DRY_RUN
DISABLE_LEADER_ELECTION EKS_CONTROL_PLANE ENABLE_PROFILING ENABLE_ZONAL_SHIFT HEALTH_PROBE_PORT IGNORE_DRA_REQUESTS
INTERRUPTION_QUEUE ISOLATED_VPC KARPENTER_SERVICE KUBE_CLIENT_BURST KUBE_CLIENT_QPS LEADER_ELECTION_NAME
LEADER_ELECTION_NAMESPACE LOG_ERROR_OUTPUT_PATHS LOG_LEVEL LOG_OUTPUT_PATHS MEMORY_LIMIT METRICS_PORT
MIN_VALUES_POLICY PREFERENCE_POLICY RESERVED_ENIS SCHEDULER_CONFIG SUBNET_REFRESH_INTERVAL
VM_MEMORY_OVERHEAD_PERCENT
""".split()
GATES = (
    "CapacityBuffer NodeOverlay NodeRepair ReservedCapacity SpotToSpotConsolidation StaticCapacity".split()
)


def test_every_option_and_gate_of_karpenter_is_there_or_has_a_word_on_the_page() -> None:
    operations = (ROOT / "docs/operations.md").read_text()
    unknown = [
        name for name in [*OPTIONS, *GATES] if f"`{name}`" not in PAGE and f"`{name}`" not in operations
    ]
    assert unknown == []


def test_there_are_few_differences() -> None:
    assert 20 < len(ROWS) <= MOST


def test_every_difference_says_what_it_is_about_what_both_do_and_why() -> None:
    incomplete = [row for row in ROWS if not all(cell.strip() for cell in row.strip("|").split(" | "))]
    lacking = [row for row in ROWS if len(row.strip("|").split(" | ")) != 4 or row.endswith("| – |")]
    assert (incomplete, lacking) == ([], [])
