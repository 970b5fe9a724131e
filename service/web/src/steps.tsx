// What became of requests over time, as the dashboard and the page of `stint simulate --html` draw it, and the picture that the
// page offers.

import { render } from "preact";
import { useMemo } from "preact/hooks";
import { duration } from "./format";
import { Plot } from "./plot";

export interface Step {
  admitted: number;
  denied: number;
  shadow?: number; // those of the admitted that a rule in shadow would have denied
}
export interface RuleReport {
  rule?: string;
  requests: number;
  admitted: number;
  denied: number;
  shadow: number;
  clients?: number;
  clientsDenied?: number;
  longestShut?: number;
  longestWait: number;
  longestDelay: number;
  limits?: { limit: string; peak: number; clientPeak: number; span: number; atLeast?: boolean }[];
  shares?: number[];
  mostDenied?: { key: string; admitted: number; denied: number; shut: number }[];
}
export interface PartReport {
  value: string;
  others?: boolean;
  admitted: number;
  denied: number;
  steps: Step[];
}
export interface CandidateReport {
  name: string;
  total: RuleReport;
  rules: RuleReport[] | null;
  stepFrom: number;
  step: number;
  steps: Step[] | null;
  parts?: PartReport[];
}
export interface Report {
  events: number;
  first: number;
  last: number;
  by?: string;
  input?: { format: string; lines: number; malformed: number; firstMalformed?: string };
  candidates: CandidateReport[];
  notes: string[] | null;
}

/** group is a number as the guides write it, wherever it is drawn. */
export const group = (n: number) => n.toLocaleString("en-US");

/** percent is a part of a whole, as the report in a terminal has it. */
export const percent = (part: number, all: number) => (all ? ((100 * part) / all).toFixed(2) + "%" : "-");

/** busiest is the most that was offered in a step of some candidates, or of parts. */
export const busiest = (of: { steps: Step[] | null }[]) =>
  of.reduce((most, { steps }) => (steps ?? []).reduce((m, s) => Math.max(m, s.admitted + s.denied), most), 1);

/** unit is the time over which requests are told, such that there are ten or more at the busiest time, and how many steps that is. */
export function unit({ candidates }: { candidates: CandidateReport[] }): { name: string; steps: number } {
  const step = candidates[0]?.step ?? 1;
  for (const [name, size] of Object.entries({ second: 1e6, minute: 6e7, hour: 3.6e9, day: 8.64e10 })) {
    if ((busiest(candidates) * size) / step >= 10) return { name, steps: size / step };
  }
  return { name: duration(step), steps: 1 };
}

/** namePart is the value of a part, or what to say in its place. */
export const namePart = (p: PartReport) => (p.others ? "others" : p.value || "none");

/** admittedOf is how much is admitted. */
export const admittedOf = (p: { admitted: number; denied: number }) =>
  `${group(p.admitted)} of ${group(p.admitted + p.denied)} (${percent(p.admitted, p.admitted + p.denied)})`;

/** area fills what is below a height in each step. Steps of one height become one line, which keeps pictures small. */
function area(steps: Step[], width: number, tall: number, height: (s: Step) => number): string {
  const tenths = (n: number) => Math.round(n * 10);
  let [x, y, d] = [0, tenths(tall), `M0 ${tall}`];
  const to = (atX: number, atY: number) => {
    for (const [command, by] of [["h", atX - x], ["v", atY - y]] as const) if (by) d += command + String(by / 10).replace(/^(-?)0\./, "$1.");
    [x, y] = [atX, atY];
  };
  steps.forEach((s, i) => {
    const next = tenths(tall - height(s));
    if (next !== y) to(tenths((i * width) / steps.length), next);
  });
  to(tenths(width), y);
  to(x, tenths(tall));
  return d + "z";
}

/** grid is the least round distance of lines, of which so many reach a height. */
function grid(most: number, lines: number): number {
  const size = 10 ** Math.floor(Math.log10(most));
  return Math.max(1, size * ([0.1, 0.2, 0.5, 1, 2].find((n) => most / (size * n) <= lines) ?? 5));
}

const minute = 60e6;
const ticks = [1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7, 2e7, 3e7, ...[1, 2, 5, 10, 20, 60, 120, 240, 720, 1440, 2880, 10_080, 40_320, 131_040].map((n) => n * minute)];

/** clock is a time as those under a plot of some length are written, which are a tick apart. */
function clock(micros: number, tick: number, length: number): string {
  const iso = new Date(Math.round(micros / 1000)).toISOString();
  const date = `${Number(iso.slice(8, 10))} ${["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"][Number(iso.slice(5, 7)) - 1]}`;
  if (tick >= 1440 * minute) return date;
  if (length > 1440 * minute) return `${date} ${iso.slice(11, 16)}`;
  return iso.slice(11, tick < 1e6 ? 21 : tick < minute ? 19 : 16);
}

interface Drawn {
  from: number;
  step: number; // microseconds
  steps: Step[] | null;
  most: number; // the height of the plot, in requests of a step
  unit: { steps: number };
}

/** Steps draws a plot of the picture: what was admitted, in shadow or not, and what was denied on top: together what was offered. */
function Steps({ from, step, steps: list, most, unit, width, height }: Drawn & { width: number; height: number }) {
  const [left, under, steps] = [48, 20, list ?? []];
  const [wide, tall, length] = [width - left - 8, height - under - 8, Math.max(1, steps.length) * step];
  const line = grid(most * unit.steps, tall / 30);
  const end = line * Math.ceil((most * unit.steps) / line);
  const y = (n: number) => (n * unit.steps * tall) / end;
  const tick = ticks.find((t) => length / t <= wide / 90) ?? 364 * 1440 * minute;
  const times: number[] = [];
  for (let at = Math.ceil(from / tick) * tick; at < from + length; at += tick) times.push(at);
  const px = (n: number) => Math.round(n * 10) / 10;
  return (
    <g transform={`translate(${left} 8)`}>
      {Array.from({ length: Math.round(end / line) + 1 }, (_, i) => px(tall - (i * line * tall) / end)).map((at, i) => (
        <g key={at}><line x2={wide} y1={at} y2={at} /><text x={-6} y={at + 4} text-anchor="end">{group(i * line)}</text></g>
      ))}
      {steps.some((s) => s.denied) && <path class="d" d={area(steps, wide, tall, (s) => y(s.admitted + s.denied))} />}
      {steps.some((s) => s.shadow) && <path class="s" d={area(steps, wide, tall, (s) => y(s.admitted))} />}
      <path class="a" d={area(steps, wide, tall, (s) => y(s.admitted - (s.shadow ?? 0)))} />
      {times.map((at) => [at, px(((at - from) / length) * wide)] as const).map(([at, x]) => (
        <g key={at}><line x1={x} x2={x} y1={tall} y2={tall + 4} /><text x={x} y={tall + 17} text-anchor={x < 20 ? "start" : x > wide - 20 ? "end" : "middle"}>{clock(at, tick, length)}</text></g>
      ))}
    </g>
  );
}

/** StepsPlot is a plot of a page. Plots of one name show the values of one time together. */
export function StepsPlot({ of: { stepFrom, step }, steps, ...rest }: { of: CandidateReport; steps: Step[] | null; most: number; label: string; height: number; sync: string; since?: boolean }) {
  const data = useMemo(() => {
    const list = steps ?? [];
    return {
      times: list.map((_, i) => (stepFrom + i * step) / 1e6),
      admitted: list.map((s) => s.admitted),
      denied: list.map((s) => s.denied),
      shadow: list.map((s) => s.shadow ?? 0),
    };
  }, [steps, stepFrom, step]);
  return <Plot {...data} {...rest} />;
}

// What is denied is hatched, so that colours are not needed.
const style = `.ground{fill:#fff}.title{fill:#0f172a;font-weight:600}text{fill:#475569}line{stroke:#e2e8f0}
.a{fill:#475569}.d{fill:url(#hatch)}.s{fill:#7c3aed}.thin{fill:#fdd9c6}.thick{stroke:#d9480f}
@media(prefers-color-scheme:dark){.ground{fill:#0f172a}.title{fill:#e2e8f0}text{fill:#a3b1c6}line{stroke:#334155}
.a{fill:#94a3b8}.s{fill:#b79bff}.thin{fill:#4a2a1d}.thick{stroke:#fb8a5a}}`;

/** picture is all plots as one SVG: candidates below each other, or, by parts, a column for each candidate and a row for each part. */
export function picture(report: Report): string {
  const { candidates, by } = report;
  const per = unit(report);
  const all = (c: CandidateReport): PartReport => ({ value: "all", admitted: c.total.admitted, denied: c.total.denied, steps: c.steps ?? [] });
  const rows = by
    ? [candidates.map(all), ...(candidates[0]?.parts ?? []).map((_, i) => candidates.map((c) => c.parts?.[i] ?? all(c)))]
    : candidates.map((c) => [{ ...all(c), value: c.name }]);
  const [columns, head, tall] = [by ? candidates.length : 1, by ? 70 : 46, by ? 124 : 160];
  const width = Math.max(860, 430 * columns);
  const [wide, height] = [width / columns, head + rows.length * tall];
  const title = `Requests per ${per.name}${by ? `, by ${by}` : ""}`;
  const told = candidates.map((c) => `. ${c.name} admits ${(c.parts ?? [all(c)]).map((p) => `${namePart(p)} ${admittedOf(p)}`).join(", ")}`).join("");
  const legend = [["a", "admitted"], ["d", "denied"], ...(candidates.some((c) => c.total.shadow) ? [["s", "in shadow"]] : [])];
  const box = document.createElement("div");
  render(
    <svg xmlns="http://www.w3.org/2000/svg" width={width} height={height} viewBox={`0 0 ${width} ${height}`} font-family="system-ui, sans-serif" font-size="12" role="img" aria-label={title + told}>
      <style>{style}</style>
      <defs><pattern id="hatch" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="thin" width="4" height="4" /><line class="thick" y2="4" stroke-width="2" /></pattern></defs>
      <rect class="ground" width={width} height={height} />
      <text class="title" x="48" y="20" font-size="14">{title}<tspan font-size="12" font-weight="400"> in UTC</tspan></text>
      {legend.map(([kind, name], i) => <g key={kind} transform={`translate(${width - 90 * (legend.length - i)} 11)`}><rect class={kind} width="10" height="10" /><text x="14" y="9">{name}</text></g>)}
      {by && candidates.map((c, i) => <text key={i} class="title" x={i * wide + 48} y="50" font-size="14">{c.name}</text>)}
      {rows.map((parts, row) => parts.map((p, column) => {
        const c = candidates[by ? column : row];
        return c && (
          <g key={column} transform={`translate(${column * wide} ${head + row * tall})`}>
            <text x="48" y="0">{namePart(p)}: {admittedOf(p)} admitted</text>
            <Steps from={c.stepFrom} step={c.step} steps={p.steps} most={busiest(by ? parts : candidates)} unit={per} width={wide} height={tall - 14} />
          </g>
        );
      }))}
    </svg>,
    box,
  );
  return new XMLSerializer().serializeToString(box.firstChild as Node) + "\n";
}
