"""What `nodesmith local` sets up is what the CDK deploys: the local side cannot import infra, hence this comparison."""

from __future__ import annotations

from infra import cluster, names, queues
from infra.concerns import CLUSTER_CONCERNS
from nodesmith.settings import PATTERNS
from nodesmith_cli.local import deployment
from tests.infra.templates import Template


def test_the_local_concerns_tick_and_time_out_as_the_deployed_ones_do() -> None:
    deployed = [(c.name, c.tick_minutes, c.timeout_seconds) for c in CLUSTER_CONCERNS]

    assert [(c.name, c.tick_minutes, c.timeout_seconds) for c in deployment.CONCERNS] == deployed


def test_the_local_queues_hide_redeliver_and_bury_messages_as_the_deployed_ones_do() -> None:
    assert deployment.RECEIVES == queues.RECEIVES
    assert deployment.BATCH_SIZE == queues.BATCH_SIZE
    assert {c.visibility_seconds for c in deployment.CONCERNS} == {
        queues.VISIBILITY_TIMEOUTS * c.timeout_seconds for c in CLUSTER_CONCERNS
    }


def test_the_local_queues_hand_messages_over_as_the_deployed_ones_do() -> None:
    assert [(c.batch_size, c.window_seconds) for c in deployment.CONCERNS] == [
        (c.batch_size, c.window_seconds) for c in CLUSTER_CONCERNS
    ]


def test_local_names_are_the_deployed_ones() -> None:
    assert deployment.TABLE_NAME == names.TABLE_NAME
    assert deployment.queue_name("shop", "lifecycle") == names.physical_name("shop", "lifecycle")


def test_notices_reach_interruption_by_the_same_rules(alpha: Template) -> None:
    deployed = [
        rule["EventPattern"]
        for rule in alpha.of_type("Events::Rule").values()
        if all("InputTransformer" not in target for target in rule["Targets"])
    ]
    assert len(deployed) == len(PATTERNS)
    assert all(pattern in deployed for pattern in PATTERNS.values())


def test_the_same_news_of_instances_wake_lifecycle() -> None:
    assert list(deployment.NEWS) == list(cluster.NEWS)
