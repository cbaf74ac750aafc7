"""The style sheet of the report's page. Its colours differ in lightness, so that charts stay readable in grey."""

STYLE = """
:root{color-scheme:light dark;--ground:#fff;--text:#1b1f24;--dim:#57606a;--line:#d8dee4;--card:#f6f8fa;
--c0:#1f4e79;--c1:#2f81b7;--c2:#2da44e;--c3:#b4bdc6;--c4:#c77700}
@media (prefers-color-scheme:dark){:root{--ground:#0d1117;--text:#e6edf3;--dim:#9da7b3;--line:#30363d;--card:#161b22;
--c0:#8ab8e6;--c1:#4a90c2;--c2:#56d364;--c3:#545d68;--c4:#e3a23c}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--text);font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main,footer{max-width:60rem;margin:0 auto;padding:1.5rem}
h1{font-size:1.75rem;line-height:1.2;margin:0 0 .25rem;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:0 0 .75rem}
section{margin:2.5rem 0 0}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(12rem,1fr));gap:1rem;margin:1.5rem 0 0}
.card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:1rem}
.card h2{color:var(--dim);font-size:.85rem;margin:0}
.card p{margin:.15rem 0 0}
.big{font-size:1.8rem;font-weight:650;line-height:1.2}
.big small{font-size:.9rem;font-weight:400;color:var(--dim)}
.dim,footer{color:var(--dim);font-size:.9rem}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.92rem;margin-top:.75rem}
th,td{text-align:left;padding:.35rem .75rem .35rem 0;border-bottom:1px solid var(--line);vertical-align:top;
overflow-wrap:anywhere}
th{color:var(--dim);font-weight:600}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
svg{display:block;width:100%;height:auto;max-width:48rem}
svg text{font:13px system-ui,-apple-system,"Segoe UI",sans-serif;fill:var(--text)}
svg .v{fill:var(--dim)}
.c0{fill:var(--c0)}.c1{fill:var(--c1)}.c2{fill:var(--c2)}.c3{fill:var(--c3)}.c4{fill:var(--c4)}
pre{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:1rem;overflow-x:auto;font-size:.85rem}
@page{size:A4;margin:15mm}
@media print{:root{--ground:#fff;--text:#000;--dim:#444;--line:#bbb;--card:#fff;
--c0:#1f4e79;--c1:#2f81b7;--c2:#2da44e;--c3:#b4bdc6;--c4:#c77700}
body{font-size:10.5pt}main,footer{max-width:none;padding:0}section{margin-top:1.2rem}
h2{break-after:avoid}.card,svg,tr{break-inside:avoid}.scroll{overflow:visible}pre{white-space:pre-wrap}
svg,.card{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""
