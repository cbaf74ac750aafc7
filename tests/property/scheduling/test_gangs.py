"""Whatever a request asks for: all of its pods get room within the limits of NodePools, or nothing is bought."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodesmith.decisions.provisioning.gangs import decide_gang
from nodesmith.model.apimachinery.quantities import CPU, total
from nodesmith.model.kubernetes.pods import PodTemplate
from nodesmith.model.kubernetes.provisioningrequests import GangStage, parse_request
from tests import builders
from tests.scenarios.gangs import ATOMIC, CHECK, request_manifest

CLASSES = st.sampled_from([ATOMIC, CHECK])
SETS = st.lists(
    st.tuples(st.integers(1, 40), st.sampled_from(["250m", "1", "3", "7"])), min_size=1, max_size=4
)


@given(CLASSES, SETS, st.integers(1, 80), st.integers(0, 6))
def test_a_gang_gets_all_of_its_room_or_none(
    class_name: str, sets: list[tuple[int, str]], most_cpu: int, own_nodes: int
) -> None:
    counts = [count for count, _ in sets]
    request = parse_request(request_manifest("job", *counts, class_name=class_name))
    templates = [
        PodTemplate("PodTemplate", f"job-{n}", builders.shape(cpu)) for n, (_, cpu) in enumerate(sets)
    ]
    nodes = tuple(builders.node(f"own-{number}", cpu="8") for number in range(own_nodes))
    pool = builders.nodepool_manifest(limits={"cpu": str(most_cpu)})
    seen = builders.snapshot(
        nodepools=(pool,),
        nodes=nodes,
        requests=(request,),
        podtemplates={each.key: each for each in templates},
    )
    found = decide_gang(builders.inputs(snapshot=seen), "default/job")
    assert found is not None
    if not found.reserves:
        assert (found.nodes, found.gang.places, found.gang.claims) == ((), {}, ())
        assert found.gang.stage in {GangStage.FAILED, GangStage.WAITING}
        return
    assert [sum(each) for each in zip(*found.gang.places.values(), strict=True)] == counts
    assert total([node.claim.capacity for node in found.nodes]).of(CPU) <= most_cpu * 1000
    assert class_name == ATOMIC or not found.nodes
    for name, placed in found.gang.places.items():
        if name.startswith("own-"):
            used = total([t.shape.requests.times(n) for t, n in zip(templates, placed, strict=True)])
            assert used.fits_in(nodes[0].allocatable)
