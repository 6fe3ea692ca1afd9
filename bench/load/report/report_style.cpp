#include "bench/load/report/report_chart.h"

namespace troupe::load {

const std::string_view kPageStyle = R"css(
:root { color-scheme: light dark; --page: #f6f7f8; --card: #ffffff; --ink: #1b2126; --soft: #55616c; --rule: #d9dee3;
  --grid: #e8ebee; --good: #0a6b4e; --bad: #b3261e; --warn: #8a5200;
  --c1: #1c66d6; --c2: #c2570c; --c3: #0b7d5e; --c4: #7a47d1; --c5: #b4235a; --c6: #66707a; }
@media (prefers-color-scheme: dark) { :root { --page: #121518; --card: #1a1e23; --ink: #e6eaee; --soft: #a0abb6;
  --rule: #323a43; --grid: #272e35; --good: #5fd0a5; --bad: #ff8f87; --warn: #f0b35e;
  --c1: #6ea8fe; --c2: #f2a15c; --c3: #55cfa6; --c4: #b99cf9; --c5: #f58ab2; --c6: #a4aeb8; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1140px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 26px; line-height: 1.2; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 34px 0 10px; }
h3 { font-size: 15px; margin: 20px 0 8px; }
p { margin: 0 0 10px; }
.note { margin-top: 16px; }
.soft { color: var(--soft); overflow-wrap: anywhere; }
.badges { display: flex; flex-wrap: wrap; gap: 8px; list-style: none; padding: 0; margin: 16px 0 0; }
.badges li { border: 1px solid var(--rule); border-radius: 999px; padding: 3px 12px; background: var(--card);
  font-size: 14px; }
.badges .good { color: var(--good); } .badges .bad { color: var(--bad); font-weight: 600; }
.badges .warn { color: var(--warn); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(136px, 1fr)); gap: 12px; margin: 20px 0 0; }
.tile, figure, .table { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; }
.tile { padding: 12px 14px; }
.tile b { display: block; white-space: nowrap; font-size: 22px; line-height: 1.25; font-weight: 600; font-variant-numeric: tabular-nums; }
.tile b small { font-size: 13px; font-weight: 400; color: var(--soft); }
.tile span { color: var(--soft); font-size: 13px; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr)); gap: 14px; }
figure { margin: 0 0 14px; padding: 12px 14px 8px; min-width: 0; }
.columns figure { margin: 0; }
figcaption { font-weight: 600; font-size: 14px; margin-bottom: 4px; }
figcaption span { font-weight: 400; color: var(--soft); }
.columns figcaption span { display: block; font-size: 13px; }
svg .bound { fill: var(--bad); }
.table { overflow-x: auto; padding: 6px 14px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 14px; }
th, td { padding: 6px 10px; text-align: right; border-bottom: 1px solid var(--grid); vertical-align: top; }
tr:last-child > * { border-bottom: 0; }
th { font-weight: 600; } thead th { color: var(--soft); font-weight: 400; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
.pairs th { width: 11em; color: var(--soft); font-weight: 400; }
.pairs td { text-align: left; overflow-wrap: anywhere; }
.words td:nth-child(n+2) { text-align: left; overflow-wrap: anywhere; }
.words th:nth-child(n+2) { text-align: left; }
.words .count { text-align: right !important; width: 6em; }
svg { display: block; width: 100%; height: auto; font: 12px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
svg text { fill: var(--ink); } svg .tick, svg .name, svg .key { fill: var(--soft); }
.lines { display: flex; flex-wrap: wrap; gap: 4px 18px; list-style: none; padding: 0; margin: 0 0 10px; font-size: 14px; }
.lines svg { display: inline-block; width: 26px; vertical-align: middle; }
svg .end { text-anchor: end; } svg .mid { text-anchor: middle; }
svg .note { paint-order: stroke; stroke: var(--card); stroke-width: 4px; stroke-linejoin: round; }
svg .grid { stroke: var(--grid); } svg .axis { stroke: var(--soft); }
svg .limit { stroke: var(--bad); stroke-dasharray: 5 4; } svg .dot { fill: var(--card); stroke: var(--ink); stroke-width: 2; }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
svg .area { opacity: 0.16; } svg .bar { opacity: 0.9; }
.c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); } .c3 { stroke: var(--c3); }
.c4 { stroke: var(--c4); } .c5 { stroke: var(--c5); } .c6 { stroke: var(--c6); }
.d1 { stroke-dasharray: 7 3; } .d2 { stroke-dasharray: 2 3; }
.f1 { fill: var(--c1); } .f2 { fill: var(--c2); } .f3 { fill: var(--c3); } .f4 { fill: var(--c4); } .f5 { fill: var(--c5); }
.f6 { fill: var(--c6); }
@media print { body { background: none; } .tile, figure, .table { break-inside: avoid; } }
)css";

}  // namespace troupe::load
