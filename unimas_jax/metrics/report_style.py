"""The style sheet of `report.html`: light and dark, wide and narrow screens.

Curve colours keep their order for people with colour-blindness (after Okabe and Ito),
with lightness adjusted for either background.
"""

CSS = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --text: #1b1f24; --dim: #5b6470;
  --line: #dde1e6; --good: #0a7a4b; --bad: #b3261e;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #a8478b;
  --c4: #7a6a00; --c5: #2f8fd0; --c6: #6b4fbb; --c7: #444b54;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #111418; --card: #1a1f25; --text: #e6e9ed; --dim: #9aa4b0;
    --line: #313842; --good: #4cc38a; --bad: #ff8a80;
    --c0: #56b4e9; --c1: #ff9248; --c2: #35c79a; --c3: #e08bc4;
    --c4: #e8d44d; --c5: #8fc8f5; --c6: #b7a3f5; --c7: #b8c0ca;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 1240px; padding: 20px 16px 48px;
  background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  -webkit-text-size-adjust: 100%;
}
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 36px 0 12px; }
h3 { font-size: 1rem; margin: 0; }
p { margin: 4px 0; }
.dim, .sub { color: var(--dim); }
.sub { font-size: .87rem; overflow-wrap: anywhere; }
.good { color: var(--good); } .bad { color: var(--bad); }
.cards {
  display: grid; gap: 12px;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 350px), 1fr));
}
.tiles {
  display: grid; gap: 12px; margin-top: 20px;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 205px), 1fr));
}
.card, .tile {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 14px; min-width: 0;
}
.tile b {
  display: block; font-size: 1.2rem; white-space: nowrap; line-height: 1.3;
  font-variant-numeric: tabular-nums;
}
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td {
  text-align: left; padding: 6px 10px; border-bottom: 1px solid var(--line);
  vertical-align: top;
}
th { font-weight: 600; color: var(--dim); font-size: .87rem; }
tr:last-child td { border-bottom: 0; }
td.num, th.num { text-align: right; white-space: nowrap; }
svg { display: block; width: 100%; height: auto; margin-top: 8px; }
svg text { fill: var(--dim); font-size: 11px; font-variant-numeric: tabular-nums; }
svg .end { text-anchor: end; } svg .mid { text-anchor: middle; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .line, svg .raw, svg .bar {
  fill: none; stroke: currentColor; stroke-width: 1.8; stroke-linejoin: round;
}
svg .raw { stroke-width: 1; opacity: .3; }
svg .band { fill: currentColor; opacity: .15; }
svg .bar { opacity: .5; }
svg circle { fill: currentColor; }
.c0 { color: var(--c0); }
.c1 { color: var(--c1); }
.c2 { color: var(--c2); }
.c3 { color: var(--c3); }
.c4 { color: var(--c4); }
.c5 { color: var(--c5); }
.c6 { color: var(--c6); }
.c7 { color: var(--c7); }
.d1 { stroke-dasharray: 6 3; } .d2 { stroke-dasharray: 2 3; }
.legend {
  display: flex; flex-wrap: wrap; gap: 2px 14px; margin-top: 8px; font-size: .87rem;
}
.legend i {
  display: inline-block; width: 14px; height: 3px; border-radius: 2px;
  margin-right: 6px; vertical-align: middle; background: currentColor;
}
.legend b { font-variant-numeric: tabular-nums; }
.trace { margin-bottom: 12px; }
.call { border-left: 3px solid var(--line); padding: 2px 0 2px 12px; margin-top: 14px; }
.call.role { border-color: var(--c0); }
.call.illegal, .call.failed, .call.truncated { border-color: var(--bad); }
pre {
  margin: 6px 0 0; padding: 8px 10px; background: var(--page); border-radius: 6px;
  font: 13px/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
  white-space: pre-wrap; overflow-wrap: anywhere; max-height: 22em; overflow-y: auto;
}
details { margin-top: 12px; }
summary { cursor: pointer; font-weight: 600; padding: 4px 0; }
code {
  font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
  overflow-wrap: anywhere;
}
@media (max-width: 480px) {
  body { padding: 16px 10px 40px; }
  .tiles { grid-template-columns: 1fr 1fr; }
  .tile { padding: 12px 10px; }
  .tile b { font-size: 1.05rem; }
  th, td { padding: 6px 4px; }
  table { font-size: 13px; }
  th, td .sub { font-size: 11.5px; }
  .card { padding: 12px 10px; }
}
@media print {
  body { background: none; }
  .card { break-inside: avoid; }
  pre { max-height: none; }
}
"""
