"""Diagrams in the docs that are generated from code: `python -m tests.pages.drawings` writes them, a test compares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from nodesmith.model.karpenter.nodeclaims import SUCCESSORS, Phase
from nodesmith.model.ledger.moves import ONWARD, Stage

Word = TypeVar("Word", bound=StrEnum)
_CONCERNS = Path(__file__).resolve().parents[2] / "docs" / "concerns"
END = "<!-- end of the drawing -->\n"


def phases() -> str:
    """Return a diagram of the transitions between a claim's phases."""
    return _states(Phase, SUCCESSORS, [f"    {Phase.TERMINATING} --> [*]: its instance is gone"])


def stages() -> str:
    """Return a diagram of the transitions between a move's stages."""
    return _states(Stage, ONWARD)


def _states(words: Iterable[Word], onward: Mapping[Word, frozenset[Word]], also: Iterable[str] = ()) -> str:
    """Return a mermaid state diagram as GitHub renders it; the first state is the initial one."""
    all_words = list(words)
    arrows = [f"    {one} --> {after}" for one in all_words for after in all_words if after in onward[one]]
    ends = [f"    {one} --> [*]: forgotten" for one in all_words if not onward[one]]
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {all_words[0]}", *arrows, *also, *ends, "```"]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Drawing:
    """A diagram, its page, and the line on the page after which it begins."""

    page: Path
    begin: str
    draw: Callable[[], str]

    def redrawn(self, text: str) -> str:
        """Return a page with its current diagram. Raises ValueError if the page has no place for it."""
        before, begin, rest = text.partition(self.begin)
        _, end, after = rest.partition(END)
        if not (begin and end):
            raise ValueError(f"the page has no place for a diagram: {self.begin.strip()} … {END.strip()}")
        return before + begin + self.draw() + end + after


DRAWINGS = (
    Drawing(_CONCERNS / "termination.md", "<!-- phases: drawn from the code -->\n", phases),
    Drawing(_CONCERNS / "disruption.md", "<!-- stages: drawn from the code -->\n", stages),
)

if __name__ == "__main__":
    for drawing in DRAWINGS:
        drawing.page.write_text(drawing.redrawn(drawing.page.read_text()))
