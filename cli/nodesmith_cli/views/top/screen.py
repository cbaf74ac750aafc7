"""The terminal application: lists that draw only visible lines, panels around them, questions before writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from rich.console import Group
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.geometry import Size
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Footer, Input, Static

from nodesmith.errors import NodesmithError
from nodesmith_cli.views.top.actions import Actions
from nodesmith_cli.views.top.fleet import Fleet
from nodesmith_cli.views.top.layout import Line, below, header, heading, node_line, pod_line
from nodesmith_cli.views.top.rows import SORTS, PodRow, View, chosen
from nodesmith_formats.wording import printable

FRAMES_PER_SECOND = 2
_STYLES = {
    "": Style(),
    "bold": Style(bold=True),
    "dim": Style(dim=True),
    "good": Style(color="green"),
    "warn": Style(color="yellow"),
    "bad": Style(color="red", bold=True),
    "bar": Style(color="cyan"),
}
_BOX = "height: auto; border: solid; padding: 1 2;"
_BELOW = 3
"""Lines of each kind below the list."""
Draw = Callable[[int, int], Line]
"""Returns the line of the item at an index, for a width."""


def _strip(line: Line, width: int, *, is_selected: bool = False) -> Strip:
    base = Style(reverse=True) if is_selected else Style()
    segments = [Segment(text, _STYLES[style] + base) for text, style in line]
    return Strip(segments).adjust_cell_length(width, base)


class Items(ScrollView, can_focus=True):
    """A list of items, of which only visible lines are drawn. The cursor stays on its item as others come and go."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "move(-10)", show=False),
        Binding("pagedown", "move(10)", show=False),
        Binding("home,g", "move(-1000000)", show=False),
        Binding("end,G", "move(1000000)", show=False),
        Binding("enter", "choose", "Open"),
    ]

    @dataclass
    class Chosen(Message):
        """The user opened the item with this key."""

        key: str

    def __init__(self, *, id: str) -> None:  # noqa: A002 - the name of textual's argument
        super().__init__(id=id)
        self._keys: Sequence[str] = ()
        self._line: Draw = lambda _index, _width: []
        self._cursor = 0

    @property
    def selected(self) -> str:
        """The key of the item at the cursor, empty if there are no items."""
        return self._keys[self._cursor] if self._keys else ""

    def show(self, keys: Sequence[str], line: Draw) -> None:
        """Show these items in place of the former ones."""
        before = self.selected
        self._keys, self._line = keys, line
        index = self._keys.index(before) if before in self._keys else min(self._cursor, len(keys) - 1)
        self._cursor = max(0, index)
        self.virtual_size = Size(self.size.width, len(keys))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Draw one visible line."""
        row, width = self.scroll_offset.y + y, self.size.width
        if row >= len(self._keys):
            return Strip.blank(width)
        return _strip(self._line(row, width), width, is_selected=row == self._cursor)

    def action_move(self, step: int) -> None:
        """Move the cursor, and scroll until it is visible."""
        self._cursor = max(0, min(len(self._keys) - 1, self._cursor + step))
        top, height = self.scroll_offset.y, max(1, self.size.height)
        if not top <= self._cursor < top + height:
            self.scroll_to(y=self._cursor if step < 0 else self._cursor - height + 1, animate=False)
        self.refresh()

    def action_choose(self) -> None:
        """Request that the item at the cursor is opened."""
        if self.selected:
            self.post_message(self.Chosen(self.selected))


class Lines(Static):
    """Some lines above or below a list."""

    def show(self, lines: Sequence[Line]) -> None:
        """Show these lines in place of the former ones."""
        texts = [
            Text.assemble(*((text, _STYLES[style]) for text, style in line), no_wrap=True) for line in lines
        ]
        self.update(Group(*texts))
        self.styles.height = len(lines)


class Question(ModalScreen[bool]):
    """A question before something is written. Only y confirms it."""

    CSS = f"Question {{ align: center middle; }} #question {{ width: auto; max-width: 80%; {_BOX} }}"

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        yield Static(
            f"{self._text}\n\nPress y to confirm, any other key to cancel.", id="question", markup=False
        )

    def on_key(self, event: object) -> None:
        """Answer."""
        self.dismiss(getattr(event, "key", "") == "y")


class Detail(Screen[None]):
    """A node with its pods, or the explanation of a pod."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,left", "app.pop_screen", "Back")]

    def __init__(self, title: Callable[[], Sequence[Line]], pods: Callable[[], Sequence[PodRow]]) -> None:
        super().__init__()
        self._heading, self._pods = title, pods

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        yield Items(id="pods")
        yield Footer()

    def on_mount(self) -> None:
        """Draw, and keep drawing."""
        self.set_interval(1 / FRAMES_PER_SECOND, self._draw)
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        pods = list(self._pods())
        self.query_one("#title", Lines).show(list(self._heading()))
        self.query_one("#pods", Items).show(
            [pod.key for pod in pods], lambda index, width: pod_line(pods[index], width)
        )

    def on_items_chosen(self, message: Items.Chosen) -> None:
        """Explain a pod."""
        app = self.app
        if isinstance(app, TopApp):
            app.explain(message.key)


class Explanation(ModalScreen[None]):
    """What is known about a pod, and its Events."""

    CSS = f"Explanation {{ align: center middle; }} #why {{ width: 90%; max-height: 90%; {_BOX} }}"

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        yield Static(self._text, id="why", markup=False)

    def on_key(self) -> None:
        """Close with any key."""
        self.dismiss()


class TopApp(App[None]):
    """`nodesmith top`."""

    CSS = "Lines { height: auto; } #filter { display: none; height: 1; border: none; } Items { height: 1fr; }"
    TITLE = "nodesmith top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("s", "sort", "Sort"),
        Binding("S", "reverse", "Reverse", show=False),
        Binding("slash", "filter", "Filter"),
        Binding("tab", "switch", "Pending", priority=True),
        Binding("space", "freeze", "Freeze"),
        Binding("c", "cordon", "Cordon"),
        Binding("u", "uncordon", "Uncordon", show=False),
        Binding("p", "pause", "Pause"),
        Binding("r", "resume", "Resume", show=False),
        Binding("escape", "clear", show=False),
    ]

    def __init__(
        self, fleet: Fleet, actions: Actions, clock: Callable[[], datetime], order: str = "name"
    ) -> None:
        super().__init__()
        self._fleet, self._actions, self._clock = fleet, actions, clock
        self._order, self._filter_words = order, ""
        self._is_reversed = self._is_frozen = self._shows_pending = False
        self._view = fleet.view(clock())

    def compose(self) -> ComposeResult:
        yield Lines(id="header")
        yield Input(placeholder="words that a node's line contains", id="filter", compact=True)
        yield Lines(id="heading")
        yield Items(id="nodes")
        yield Lines(id="below")
        yield Footer()

    def on_mount(self) -> None:
        """Draw, and keep drawing."""
        self.query_one("#nodes", Items).focus()
        self.set_interval(1 / FRAMES_PER_SECOND, self._look)
        self.call_after_refresh(self._look)

    def _look(self) -> None:
        if not self._is_frozen:
            self._view = self._fleet.view(self._clock())
        if len(self.screen_stack) == 1:
            with suppress(NoMatches):  # while the application ends, its widgets are gone
                self._draw(self._view)

    def _draw(self, view: View) -> None:
        width = self.size.width
        frozen: Line = [(" frozen: press space to go on", "warn")] if self._is_frozen else []
        lines = header(view, width)
        lines[0] = [*lines[0], *frozen]
        self.query_one("#header", Lines).show(lines)
        items = self.query_one("#nodes", Items)
        if self._shows_pending:
            self.query_one("#heading", Lines).show([[("PENDING PODS (tab: nodes)", "dim")]])
            items.show([pod.key for pod in view.pending], lambda n, wide: pod_line(view.pending[n], wide))
        else:
            self.query_one("#heading", Lines).show(
                [heading(width, self._order, is_reversed=self._is_reversed)]
            )
            rows = chosen(view.nodes, self._order, self._filter_words, is_reversed=self._is_reversed)
            items.show([row.name for row in rows], lambda n, wide: node_line(rows[n], wide, view.at))
        self.query_one("#below", Lines).show(below(view, width, _BELOW))

    def action_sort(self) -> None:
        """Sort by the next column."""
        names = list(SORTS)
        self._order = names[(names.index(self._order) + 1) % len(names)]
        self._draw(self._view)

    def action_reverse(self) -> None:
        """Reverse the order."""
        self._is_reversed = not self._is_reversed
        self._draw(self._view)

    def action_switch(self) -> None:
        """Show pending pods in place of nodes, or nodes again."""
        self._shows_pending = not self._shows_pending
        self._draw(self._view)

    def action_freeze(self) -> None:
        """Stop the picture, or let it go on. The cluster is still watched."""
        self._is_frozen = not self._is_frozen
        self._look()

    def action_filter(self) -> None:
        """Ask for words."""
        field = self.query_one("#filter", Input)
        field.styles.display = "block"
        field.focus()

    def action_clear(self) -> None:
        """Show all nodes again."""
        field = self.query_one("#filter", Input)
        field.value, self._filter_words = "", ""
        field.styles.display = "none"
        self.query_one("#nodes", Items).focus()
        self._draw(self._view)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while the user types."""
        self._filter_words = event.value
        self._draw(self._view)

    def on_input_submitted(self) -> None:
        """Go back to the list, and keep the filter."""
        self.query_one("#nodes", Items).focus()

    def on_items_chosen(self, message: Items.Chosen) -> None:
        """Open a node or explain a pod."""
        if self._shows_pending:
            self.explain(message.key)
        elif any(row.name == message.key for row in self._view.nodes):
            self.push_screen(
                Detail(
                    lambda: self._title(message.key), lambda: self._fleet.pods_on(message.key, self._clock())
                )
            )

    def _title(self, name: str) -> list[Line]:
        view = self._fleet.view(self._clock())
        row = next((node for node in view.nodes if node.name == name), None)
        if row is None:
            return [[(f"{name} is gone", "warn")]]
        line = node_line(row, self.size.width, view.at)
        return [line, [(row.detail, "dim")]] if row.detail else [line]

    @work(thread=True, exclusive=True)
    def explain(self, key: str) -> None:
        """Show what is known about a pod."""
        try:
            text = "\n".join(self._actions.explained(key, self._clock()))
        except NodesmithError as error:
            text = printable(str(error))
        self.call_from_thread(self.push_screen, Explanation(text))

    def action_cordon(self) -> None:
        """Close the selected node to new pods, after a question."""
        self._cordon(unschedulable=True)

    def action_uncordon(self) -> None:
        """Open the selected node again, after a question."""
        self._cordon(unschedulable=False)

    def _cordon(self, *, unschedulable: bool) -> None:
        node = self.query_one("#nodes", Items).selected
        if not node or self._shows_pending:
            return
        question = f"Cordon node {node}? It gets no new pods." if unschedulable else f"Uncordon node {node}?"
        self._ask(question, lambda: self._actions.cordon(node, unschedulable=unschedulable))

    def action_pause(self) -> None:
        """Pause voluntary disruption, after a question."""
        self._ask(
            "Pause consolidation, drift and other voluntary disruption of this cluster?", self._actions.pause
        )

    def action_resume(self) -> None:
        """Resume voluntary disruption, after a question."""
        self._ask("Resume voluntary disruption of this cluster?", self._actions.resume)

    def _ask(self, question: str, do: Callable[[], str]) -> None:
        def answered(is_confirmed: bool | None) -> None:
            if is_confirmed:
                self._do(do)

        self.push_screen(Question(question), answered)

    @work(thread=True)
    def _do(self, do: Callable[[], str]) -> None:
        try:
            self.call_from_thread(self.notify, printable(do()), markup=False)
        except NodesmithError as error:
            self.call_from_thread(self.notify, printable(str(error)), severity="error", markup=False)
