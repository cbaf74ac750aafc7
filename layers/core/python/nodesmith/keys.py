"""Keys of the objects in the bucket, and of the partitions in the table. IAM policies are bound to them."""

from __future__ import annotations

_PARTITION = "CLUSTER#"


def snapshot_key(cluster: str) -> str:
    """Return the key of the S3 object with a cluster's snapshot."""
    return f"clusters/{cluster}/snapshot.json.gz"


def snapshot_base_key(cluster: str, digest: str) -> str:
    """Return the key of the S3 object with the whole snapshot that deltas change, given the SHA-256 of its bytes."""
    return f"clusters/{cluster}/snapshot.{digest}.json.gz"


def snapshot_keys(cluster: str) -> str:
    """Return the pattern of the keys of a cluster's snapshot and of the bases of its deltas."""
    return f"clusters/{cluster}/snapshot.*"


def decision_key(cluster: str, decision: str) -> str:
    """Return the key of the S3 object with a decision's record."""
    return f"clusters/{cluster}/decisions/{decision}.json.gz"


def decision_snapshot_key(cluster: str, decision: str) -> str:
    """Return the key of the S3 object with a decision's snapshot, which is kept to replay the decision."""
    return f"clusters/{cluster}/decisions/{decision}.snapshot.json.gz"


def unplaced_key(cluster: str) -> str:
    """Return the key of the S3 object with the pods that the newest decision could not place."""
    return f"clusters/{cluster}/unplaced.json"


def growth_key(cluster: str) -> str:
    """Return the key of the S3 object with the histories of workloads that size CapacityBuffers."""
    return f"clusters/{cluster}/growth.json.gz"


def shadow_key(cluster: str) -> str:
    """Return the key of the S3 object with the shadows of an observed cluster."""
    return f"clusters/{cluster}/shadow.json.gz"


def notified_key(cluster: str) -> str:
    """Return the key of the S3 object with the ids of the notifications that were sent lately."""
    return f"clusters/{cluster}/notified.json"


def metrics_key(cluster: str, concern: str) -> str:
    """Return the key of the S3 object with the Prometheus metrics of a concern."""
    return f"clusters/{cluster}/metrics/{concern}.json"


def on_sale_key(cluster: str) -> str:
    """Return the key of the S3 object with the offerings that a cluster's NodePools may buy, and their prices."""
    return f"clusters/{cluster}/metrics/offerings.json"


def catalog_key(region: str) -> str:
    """Return the key of the S3 object with a region's catalogue."""
    return f"catalog/{region}.json.gz"


def commitments_key(region: str) -> str:
    """Return the key of the S3 object with the commitments that apply in a region, for the command line."""
    return f"catalog/{region}.commitments.json"


def learned_partition_key(region: str) -> str:
    """Return the key of the table's partition with what nodes really offer, for all clusters of the region."""
    return f"LEARNED#{region}"


def budget_partition_key(region: str) -> str:
    """Return the key of the table's partition with the EC2 calls and the money that the clusters of a region share."""
    return f"BUDGET#{region}"


def partition_key(cluster: str) -> str:
    """Return the key of the table's partition with a cluster's ledger. IAM restricts the functions to it."""
    return f"{_PARTITION}{cluster}"


def forwarder_partition_key(cluster: str) -> str:
    """Return the key of the table's partition with the forwarder's heartbeat, the only one the forwarder may write."""
    return f"FORWARDER#{cluster}"


def health_partition_key(cluster: str) -> str:
    """Return the key of the table's partition with the health records of a cluster, or of the region for no cluster."""
    return f"HEALTH#{cluster}" if cluster else "HEALTH"


def notices_partition_key(cluster: str) -> str:
    """Return the key of the table's partition with the EC2 events that a cluster must still handle."""
    return f"NOTICES#{cluster}"


def cluster_of(partition: str) -> str:
    """Return the cluster whose ledger is in a partition, empty for a partition without a ledger."""
    return partition.removeprefix(_PARTITION) if partition.startswith(_PARTITION) else ""
