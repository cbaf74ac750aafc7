"""YAML that would take too long or too much memory: refused quickly, with the reason."""

from __future__ import annotations

import time
from typing import Any

import pytest

from nodesmith_formats.manifests.documents import EVENTS, BadDocument, PurePython, parse_document

MIB = 2**20
LAUGHS = "a0: &a0 [lol]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))
MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)
ENDLESS = {
    "aliases of aliases": (LAUGHS, "aliases expand to more than"),
    "merges of merges": (MERGES, "aliases expand to more than"),
    "an alias inside of its anchor": ("a: &a [*a]\n", "is an alias inside its own anchor"),
    "brackets": ("[" * 10 * MIB, "nested too deeply"),
    "maps in maps": ("{a: " * MIB, "not JSON"),
    "dashes": ("- " * MIB, "nested too deeply"),
    "ten million items": ("x: [" + "a," * 5 * MIB + "]", "more than 100000 values in one document"),
    "control characters": ("\x01" * 10 * MIB, "not YAML"),
    "an open quote": ('"' + "a" * 10 * MIB, "not YAML"),
    "tabs": ("\t" * 10 * MIB, "not YAML"),
    "colons": (":" * 10 * MIB, "not YAML"),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_excessive_documents_are_refused_quickly(name: str) -> None:
    text, words = ENDLESS[name]
    began = time.process_time()
    with pytest.raises(BadDocument, match=words):
        parse_document(text, 100_000)
    assert time.process_time() - began < 2, "a second on a machine that does nothing else"


@pytest.mark.parametrize(("first", "repeated", "last"), [("", "1", "z"), ("1", "_", "z"), ("0b", "_", "")])
def test_long_texts_that_begin_like_a_number_are_read_quickly(first: str, repeated: str, last: str) -> None:
    text = first + repeated * MIB + last
    began = time.process_time()
    assert parse_document(f"x: {text}")[1] == {"x": text}
    assert time.process_time() - began < 2, "a second on a machine that does nothing else"


def test_keys_are_texts_as_kubectl_reads_them() -> None:
    _, found = parse_document("{1: a, on: b, n: c, 0x1F: d, 1.50: e, ~x: f, 'y': g}")
    assert found == {"1": "a", "true": "b", "false": "c", "31": "d", "1.5": "e", "~x": "f", "y": "g"}


def test_a_key_that_becomes_the_text_of_another_is_given_twice() -> None:
    with pytest.raises(BadDocument, match="is given twice"):
        parse_document("on: 1\n'true': 2\n")


def test_a_key_that_is_null_is_refused() -> None:
    with pytest.raises(BadDocument, match="null") as raised:
        parse_document("a: 1\n~: 2\n")
    assert raised.value.line == 2


def test_numbers_that_json_does_not_have_are_refused() -> None:
    with pytest.raises(BadDocument, match=r"\.inf is not a number that Kubernetes accepts"):
        parse_document("x: .inf\n")


def test_documents_read_the_same_without_libyaml() -> None:
    text = "a: &x [1, 0x10, 'yes', 2026-01-31] # why\nb: {c: *x}\nd: |\n  e\n---\n- f\n"

    def faults_of(reader: Any) -> list[tuple[str, int, int]]:
        found = []
        while reader.check_event():
            event = reader.get_event()
            words = f"{type(event).__name__} {getattr(event, 'value', '')} {getattr(event, 'anchor', '')}"
            found.append((words, event.start_mark.line, event.start_mark.column))
        return found

    assert faults_of(EVENTS(text)) == faults_of(PurePython(text))
