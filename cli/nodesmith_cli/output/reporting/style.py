"""The style sheet of all reports. Its variables are the design tokens; a test computes the contrast of their pairs.

Colours of charts differ in lightness, so that charts stay readable in grey. Spot, on-demand and reserved capacity have
tints to put text on, and are told apart by the line around them as well.
"""

from __future__ import annotations

from collections.abc import Mapping

LIGHT: Mapping[str, str] = {
    "ground": "#ffffff",
    "surface": "#f5f7fa",
    "line": "#d3dae3",
    "edge": "#7b8794",
    "text": "#17202b",
    "dim": "#526070",
    "accent": "#0b5cad",
    "good": "#146c3a",
    "warn": "#8a4b00",
    "bad": "#b3261e",
    "c0": "#1f4e79",
    "c1": "#2f81b7",
    "c2": "#2d8f4e",
    "c3": "#8793a0",
    "c4": "#b86e00",
    "spot": "#d8f0e1",
    "spot-line": "#2d8f4e",
    "on-demand": "#dbe9f8",
    "on-demand-line": "#2f6fb0",
    "reserved": "#e9e1f7",
    "reserved-line": "#6f4fb3",
    "other": "#eceff3",
    "other-line": "#6b7785",
    "pending": "#fbe3de",
    "pending-line": "#b3261e",
    "coming": "#f6e7c8",
    "leaving": "#e2a07e",
}
DARK: Mapping[str, str] = {
    "ground": "#0f141a",
    "surface": "#181f28",
    "line": "#2d3743",
    "edge": "#76828f",
    "text": "#e8edf3",
    "dim": "#a3b0be",
    "accent": "#7cb8f5",
    "good": "#6fd394",
    "warn": "#f0b35e",
    "bad": "#ff9d92",
    "c0": "#9cc6ee",
    "c1": "#4f97cc",
    "c2": "#5cc983",
    "c3": "#78848f",
    "c4": "#e3a23c",
    "spot": "#173a28",
    "spot-line": "#5cc983",
    "on-demand": "#17304d",
    "on-demand-line": "#6aabea",
    "reserved": "#2f2452",
    "reserved-line": "#b49bf0",
    "other": "#27303a",
    "other-line": "#94a1ae",
    "pending": "#4a1f1b",
    "pending-line": "#ff9d92",
    "coming": "#54421c",
    "leaving": "#8a4a2b",
}
TEXT_ON: tuple[tuple[str, str], ...] = (
    *(
        (ink, ground)
        for ink in ("text", "dim", "accent", "good", "warn", "bad")
        for ground in ("ground", "surface")
    ),
    *(("text", tint) for tint in ("spot", "on-demand", "reserved", "other", "pending")),
)
"""Pairs of text and background, which need a contrast of 4.5."""
_SHAPES = ("c0", "c1", "c2", "c3", "c4", "edge")
_TINTS = ("spot", "on-demand", "reserved", "other", "pending")
SHAPE_ON: tuple[tuple[str, str], ...] = (
    *((shape, "ground") for shape in _SHAPES),
    *((f"{tint}-line", "ground") for tint in _TINTS),
)
"""Pairs of shapes and background, which need a contrast of 3."""


def variables(tokens: Mapping[str, str]) -> str:
    """Return tokens as CSS variables."""
    return "".join(f"--{name}:{colour};" for name, colour in tokens.items())


def style_sheet() -> str:
    """Return the style sheet: light, dark if the reader prefers that, and light on paper."""
    return (
        f":root{{color-scheme:light dark;{variables(LIGHT)}}}"
        f"@media (prefers-color-scheme:dark){{:root{{{variables(DARK)}}}}}"
        f"{_RULES}{PICTURES}"
        f"@media print{{:root{{{variables(LIGHT)}}}{_PAPER}}}"
    )


_FONT = 'system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Liberation Sans",sans-serif'
_RULES = f"""
*{{box-sizing:border-box}}
body{{margin:0;background:var(--ground);color:var(--text);font:16px/1.5 {_FONT}}}
.top,main,footer{{max-width:62rem;margin:0 auto;padding:0 1.5rem}}
.top{{padding-top:2rem}}
.brand{{display:flex;align-items:center;gap:.5rem;margin:0 0 1.25rem;color:var(--dim);font-size:.9rem;font-weight:600}}
.brand svg{{width:1.15rem;min-width:0;height:1.15rem}}
h1{{font-size:1.9rem;line-height:1.2;letter-spacing:-.01em;margin:0 0 .4rem;overflow-wrap:anywhere}}
h2{{font-size:1.2rem;line-height:1.3;margin:0 0 .6rem;overflow-wrap:anywhere}}
h3{{font-size:1rem;margin:1.5rem 0 .5rem;overflow-wrap:anywhere}}
p{{margin:.5rem 0;max-width:46rem;overflow-wrap:anywhere}}
.lead{{font-size:1.1rem;color:var(--dim)}}
section{{margin:2.75rem 0 0}}
.cards{{display:grid;grid-template-columns:repeat(auto-fit,minmax(11.5rem,1fr));gap:.9rem;margin:1.6rem 0 0}}
.card{{background:var(--surface);border:1px solid var(--line);border-radius:10px;padding:.9rem 1rem}}
.card dt{{color:var(--dim);font-size:.88rem;font-weight:600}}
.card dd{{margin:.1rem 0 0;overflow-wrap:anywhere}}
.card .big{{font-size:1.75rem;font-weight:650;line-height:1.25;letter-spacing:-.01em;font-variant-numeric:tabular-nums}}
.big small{{font-size:.9rem;font-weight:400;color:var(--dim);letter-spacing:0}}
.dim,footer{{color:var(--dim);font-size:.92rem}}
.good{{color:var(--good)}}.warn{{color:var(--warn)}}.bad{{color:var(--bad)}}
.note{{border-left:3px solid var(--edge);padding:.1rem 0 .1rem .9rem}}
.note.warn,.note.bad{{border-color:currentColor}}
footer{{margin-top:3rem;padding-top:1rem;padding-bottom:2.5rem;border-top:1px solid var(--line);overflow-wrap:anywhere}}
.scroll{{overflow-x:auto}}
.scroll:focus-visible{{outline:2px solid var(--accent);outline-offset:3px}}
table{{border-collapse:collapse;width:100%;font-size:.92rem;margin-top:.5rem}}
th,td{{text-align:start;padding:.4rem 1rem .4rem 0;border-bottom:1px solid var(--line);vertical-align:top;
overflow-wrap:anywhere;unicode-bidi:isolate}}
th:last-child,td:last-child{{padding-right:0}}
thead th{{color:var(--dim);font-weight:600;white-space:nowrap;border-bottom-color:var(--edge)}}
td:first-child:not(.n){{min-width:9rem}}
.k{{white-space:nowrap}}
.n{{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}}
ul{{padding-left:1.2rem;margin:.5rem 0}}li{{margin:.25rem 0;max-width:46rem;overflow-wrap:anywhere}}
pre{{background:var(--surface);border:1px solid var(--line);border-radius:10px;padding:1rem;font-size:.85rem;
white-space:pre-wrap;overflow-wrap:anywhere}}
figure{{margin:.75rem 0 0}}figcaption{{color:var(--dim);font-size:.9rem;margin-top:.4rem;max-width:46rem}}
"""
PICTURES = f"""
svg{{display:block;width:100%;min-width:40rem;height:auto}}
svg text{{font:13px {_FONT};fill:var(--text)}}
svg .v{{fill:var(--dim)}}svg .b{{font-weight:650}}svg .s{{font-size:12px}}
svg .axis{{stroke:var(--line);stroke-width:1;fill:none}}
svg .edge{{stroke:var(--edge);stroke-width:1;fill:none}}
.c0{{fill:var(--c0)}}.c1{{fill:var(--c1)}}.c2{{fill:var(--c2)}}.c3{{fill:var(--c3)}}.c4{{fill:var(--c4)}}
.spot{{fill:var(--spot);stroke:var(--spot-line);stroke-dasharray:5 3}}
.on-demand{{fill:var(--on-demand);stroke:var(--on-demand-line)}}
.reserved{{fill:var(--reserved);stroke:var(--reserved-line);stroke-width:2}}
.other{{fill:var(--other);stroke:var(--other-line)}}
.pending{{fill:var(--pending);stroke:var(--pending-line)}}
.flow{{fill:var(--edge);fill-opacity:.22}}
.cut{{stroke:var(--ground);stroke-width:1;stroke-opacity:.75;fill:none}}
.serving{{fill:var(--c1)}}.coming{{fill:var(--coming);stroke:var(--edge)}}.leaving{{fill:var(--leaving);stroke:var(--edge)}}
"""
"""The rules of the pictures alone, for a page that has its own frame. They need the variables."""
_PAPER = """
@page{size:A4;margin:15mm}
body{font-size:10.5pt}.top,main,footer{max-width:none;padding-left:0;padding-right:0}.top{padding-top:0}
section{margin-top:1.4rem}h1,h2,h3,thead,figcaption{break-after:avoid}h1{font-size:19pt}h2{font-size:13pt}
.card,svg,tr,figure,.note{break-inside:avoid}.scroll{overflow:visible}
.cards{grid-template-columns:repeat(4,1fr)}.card .big{font-size:15pt}
table,figcaption,.dim,.card dt{font-size:9pt}th,td{padding:.25rem .6rem .25rem 0}thead th{white-space:normal}
svg{min-width:0}p,li{orphans:3;widows:3}
svg,.card,body{print-color-adjust:exact;-webkit-print-color-adjust:exact}
"""
