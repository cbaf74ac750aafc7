"""A console of rich on which text from manifests and clusters controls no terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from nodesmith_formats.wording import printable_text


class SafeConsole(Console):
    """Escapes control characters in all that it prints, except ends of lines and what rich itself controls."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as rich does, with escaped text."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable_text(segment.text), segment.style)
