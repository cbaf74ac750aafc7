"""The page's routes. Every answer is rendered here, from values; templates escape all text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flask import Flask, Response, abort, redirect, render_template, request, url_for
from jinja2 import StrictUndefined
from werkzeug.exceptions import HTTPException, MethodNotAllowed, default_exceptions

from nodesmith import __version__
from nodesmith.errors import NodesmithError
from nodesmith_cli.output.reporting.style import DARK, LIGHT, PICTURES, variables
from nodesmith_cli.views.ui import wording
from nodesmith_cli.views.ui.access import HEADERS, METHODS, Gate
from nodesmith_cli.views.ui.pages.history import history, history_csv
from nodesmith_cli.views.ui.pages.kept import (
    PageData,
    alternatives_page,
    decision_page,
    health,
    next_,
    proof,
    stay_lines,
    why,
)
from nodesmith_cli.views.ui.pages.live import NodeQuery, node_page, now_page, pod_page

Page = Callable[[], Any]
NAVIGATION = (
    ("now", "Now", "What runs, and what it costs"),
    ("why", "Why", "Why pods wait and nodes stay"),
    ("next", "Next", "What happens next"),
    ("proof", "Proof", "What it saves"),
    ("health", "Health", "What is wrong, and where capacity is short"),
    ("history", "History", "What happened"),
)
_PARAMETERS = frozenset({"q", "sort", "reverse", "zone", "type", "sold", "state", "page", "at"})
"""The names in queries that pages read."""


@dataclass(frozen=True, slots=True)
class Site:
    """What the routes need: the gate, and the data of the pages."""

    gate: Gate
    data: PageData


class _Pages(Flask):
    """Logs failures without the path, since the link is a path."""

    def log_exception(self, exc_info: Any, *_: Any) -> None:
        self.logger.error("a page could not be made", exc_info=exc_info)


def make_app(site: Site) -> Flask:
    """Return the WSGI application."""
    app = _Pages("nodesmith_cli.views.ui", static_folder="static", template_folder="templates")
    app.jinja_options = {
        **app.jinja_options,
        "finalize": wording.shown,
        "trim_blocks": True,
        "lstrip_blocks": True,
    }
    app.jinja_env.autoescape = True
    app.url_map.merge_slashes = False
    app.jinja_env.filters.update(wording.FILTERS)
    link = wording.url(url_for)
    app.jinja_env.globals.update(
        navigation=NAVIGATION, version=__version__, url=link, self_url=lambda: link(*_present(), **_query())
    )
    app.jinja_env.undefined = StrictUndefined
    app.before_request(lambda: _check(site.gate))
    app.after_request(_with_headers)
    for code in default_exceptions:
        app.register_error_handler(code, _fault)
    app.register_error_handler(NodesmithError, _unreadable)
    app.add_url_rule("/enter/<once>", "enter", lambda once: _enter(site.gate, once), methods=["GET"])
    _add_pages(app, site.data)
    return app


def _add_pages(app: Flask, data: PageData) -> None:
    def add(rule: str, name: str, make: Callable[..., dict[str, Any]]) -> None:
        def answer(**parts: str) -> str:
            return render_template(f"{name}.html", page=name, head=data.head(), **make(**parts))

        app.add_url_rule(rule, name, answer, methods=["GET"])

    app.add_url_rule("/", "root", lambda: redirect(url_for("now"), 303), methods=["GET"])
    add("/now", "now", lambda: now_page(data.sampler, _node_query()))
    add("/why", "why", lambda: why(data, request.args.get("q", "")))
    add("/next", "next", lambda: next_(data))
    add("/proof", "proof", lambda: proof(data))
    add("/health", "health", lambda: health(data))
    add("/history", "history", lambda: history(data, request.args.get("at", "")))
    add("/node/<path:name>", "node", lambda name: node_page(data, name) or abort(404))
    add("/pod/<namespace>/<path:name>", "pod", lambda namespace, name: pod_page(data, f"{namespace}/{name}"))
    add(
        "/decision/<id_>/alternatives", "alternatives", lambda id_: alternatives_page(data, id_) or abort(404)
    )
    add("/decision/<id_>", "decision", lambda id_: decision_page(data, id_) or abort(404))
    add("/stay/<path:name>", "stay", lambda name: {"name": name, "lines": stay_lines(data, name)})
    app.add_url_rule("/tokens.css", "tokens", _tokens, methods=["GET"])
    app.add_url_rule(
        "/history.csv", "csv", lambda: Response(history_csv(data), mimetype="text/csv"), methods=["GET"]
    )


def _present() -> tuple[str]:
    return (request.endpoint or "now",)


def _query() -> dict[str, str]:
    """Return the parameters of this request that pages read, and the variable parts of its path."""
    parameters = {name: value for name, value in request.args.items() if name in _PARAMETERS}
    return {**parameters, **(request.view_args or {})}


def _tokens() -> Response:
    """Return the colours and the rules of drawings, which the reports of other commands share."""
    light, dark = variables(LIGHT), variables(DARK)
    sheet = f":root{{color-scheme:light dark;{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}{PICTURES}"
    return Response(sheet, mimetype="text/css")


def _node_query() -> NodeQuery:
    """Return the query about the table of nodes. Invalid values are ignored."""
    args = request.args
    number = args.get("page", "1")
    return NodeQuery(
        words=args.get("q", "")[:200],
        order=args.get("sort", "price"),
        is_reversed=args.get("reverse") == "1",
        zone=args.get("zone", ""),
        kind=args.get("type", ""),
        sold=args.get("sold", ""),
        state=args.get("state", ""),
        page=int(number) if number.isascii() and number.isdigit() and len(number) < 6 else 1,
    )


def _check(gate: Gate) -> Response | None:
    """Refuse a request that did not come from a browser that has followed the link."""
    if not gate.is_own_host(request.headers.get("Host", "")):
        abort(400, "This page is served under its own address only.")
    if request.method not in METHODS:
        raise MethodNotAllowed(METHODS, "This page is read-only: use GET.")
    if request.path.startswith("/enter/"):
        return None
    if not gate.lets_in(request.cookies.get(gate.cookie, "")):
        abort(403, "Open the link that nodesmith ui has printed. Each link lets one browser in.")
    return None


def _enter(gate: Gate, once: str) -> Response:
    if request.method == "HEAD":
        abort(403, "Open the link in a browser.")  # programs that preview links must not use it up
    is_known = gate.lets_in(request.cookies.get(gate.cookie, ""))
    if not is_known and not gate.enter(once):
        abort(403, "This link has been used already, or is not a link to this page. A new one was printed.")
    answer: Any = redirect(url_for("now"), 303)
    answer.set_cookie(gate.cookie, gate.token, httponly=True, samesite="Strict", path="/")
    return answer  # type: ignore[no-any-return]


def _with_headers(response: Response) -> Response:
    response.headers.update(HEADERS)
    if request.path.startswith("/static/"):
        response.headers["Cache-Control"] = "private, max-age=3600"
    return response


def _fault(error: HTTPException) -> Any:
    code = error.code or 500
    answer = render_template("error.html", code=code, title=error.name, message=error.description)
    return answer, code, ({"Allow": ", ".join(METHODS)} if code == 405 else {})


def _unreadable(error: NodesmithError) -> Any:
    return render_template("error.html", code=502, title="Not readable now", message=str(error)), 502
