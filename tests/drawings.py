"""Drawings in the docs that are made from code: `python -m tests.drawings` draws them anew, a test tells when to."""

from __future__ import annotations

from pathlib import Path

from nodesmith.model.nodeclaims import SUCCESSORS, Phase

PAGE = Path(__file__).resolve().parents[1] / "docs" / "concerns" / "termination.md"
BEGIN, END = "<!-- phases: drawn from the code -->\n", "<!-- end of the drawing -->\n"


def phases() -> str:
    """Draw what may follow what in a claim's life, as GitHub draws mermaid."""
    arrows = [f"    {phase} --> {after}" for phase in Phase for after in Phase if after in SUCCESSORS[phase]]
    ends = [f"    {phase} --> [*]: forgotten" for phase in Phase if not SUCCESSORS[phase]]
    gone = [f"    {Phase.TERMINATING} --> [*]: its instance is gone"]
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {Phase.PENDING}", *arrows, *gone, *ends, "```"]
    return "\n".join(lines) + "\n"


def redrawn(text: str) -> str:
    """Give a page with its drawing as it must be. Raises ValueError where there is no place for it."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no place for a drawing: {BEGIN.strip()} … {END.strip()}")
    return before + begin + phases() + end + after


if __name__ == "__main__":
    PAGE.write_text(redrawn(PAGE.read_text()))
