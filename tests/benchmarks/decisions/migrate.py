"""`nodesmith migrate`: fields of thirty groups without an account, invalid objects, and seconds of processor time."""

from __future__ import annotations

import time

from nodesmith_cli.manifests.validating.command import check
from nodesmith_cli.migration.nodegroups.command import manifests_of, migrated
from nodesmith_cli.migration.nodegroups.reading import GroupReading
from nodesmith_formats.manifests.manifests import Document
from tests.aws.nodegroups import CLUSTER, REGION, Clients, unaccounted
from tests.benchmarks.figures import Figure


def figures() -> list[Figure]:
    """Convert thirty groups of all kinds, each to a NodePool of its own."""
    found = GroupReading(Clients(), REGION).groups_of(CLUSTER)
    began = time.process_time()
    done = migrated(found, apart=True)
    took = time.process_time() - began
    members = [member for each in done.found for member in each.members]
    fields = [reported for member in members for reported in member.account.all()]
    manifests = manifests_of(done.found)
    documents = [Document(each, "migrated", number) for number, each in enumerate(manifests)]
    wrong = [each for each in check(documents, REGION) if each.is_error]
    return [
        Figure("migrate-fields-unaccounted", len(unaccounted(fields)), "fields", 0, f"of {len(fields)}"),
        Figure(
            "migrate-groups-left-out",
            len(found.groups) - len(members),
            "groups",
            0,
            f"of {len(found.groups)}",
        ),
        Figure("migrate-invalid-objects", len(wrong), "errors", 0, f"in {len(manifests)} objects"),
        Figure("migrate-30-groups-cpu-s", took, "s", 10),
    ]
