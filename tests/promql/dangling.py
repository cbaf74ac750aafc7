"""What queries name and nobody exports."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tests.promql import Answer

OF_TARGETS = frozenset({"cluster", "job", "instance", "pod"})
"""Labels that Prometheus adds to what it scrapes, `cluster` if it is told to."""


def dangling(answers: Mapping[str, Answer], known: Mapping[str, Collection[str]]) -> list[str]:
    """Return, for each query, its fault or a name that nothing in `known` (series → labels) has."""
    found = [f"{query}: {answer.fault}" for query, answer in answers.items() if answer.fault]
    for query, answer in answers.items():
        for use in answer.uses:
            found += [f"{query}: {each}" for each in unknown_labels(use.labels, use.series, known)]
    return sorted(set(found))


def unknown_labels(
    labels: Iterable[str], series: Iterable[str], known: Mapping[str, Collection[str]]
) -> list[str]:
    """Return the names of series that nobody exports and the labels that none of these series has."""
    series = list(series)
    missing = [name for name in series if name not in known]
    has = {label for name in series for label in known.get(name, ())} | OF_TARGETS
    return missing + [label for label in labels if label not in has]
