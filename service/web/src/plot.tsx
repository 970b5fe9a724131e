// The wide plot: what was offered, and the part that was admitted; what was denied is the gap between.

import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import "./plot.css";
import { amount, elapsed, minuteOf, secondOf } from "./format";

const color = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export interface Mark {
  at: number; // Unix seconds
  text: string;
  bad: boolean;
}

/** Counts are of one step of time each; null is not known, and stays blank. */
export type Counts = (number | null)[];

interface Props {
  times: number[]; // Unix seconds
  admitted: Counts;
  denied: Counts;
  degraded?: Counts;
  shadow?: Counts;
  marks?: Mark[];
  height?: number;
  most?: number; // what the scale reaches at least, so that several plots have one
  label: string;
  since?: boolean; // whether times are shown as what has passed since midnight, as those of made-up traffic are
  sync?: string; // plots of one name show the values of one time together
  range?: [number, number]; // what is brushed
  onBrush?: (range: [number, number] | undefined) => void;
}

/** hatch is amber lines, so that degraded decisions are told apart without colour. */
function hatch(): CanvasPattern | string {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const c = tile.getContext("2d");
  if (!c) return color("--degraded");
  c.strokeStyle = color("--degraded");
  c.lineWidth = 1.5;
  c.beginPath();
  c.moveTo(-1, 7);
  c.lineTo(7, -1);
  c.stroke();
  return c.createPattern(tile, "repeat") ?? color("--degraded");
}

function drawMarks(u: uPlot, marks: Mark[]) {
  const { ctx } = u;
  ctx.save();
  ctx.font = `${11 * devicePixelRatio}px "IBM Plex Sans", sans-serif`;
  ctx.textAlign = "left";
  let free = -Infinity;
  for (const mark of marks) {
    const x = u.valToPos(mark.at, "x", true);
    if (x < u.bbox.left || x > u.bbox.left + u.bbox.width) continue;
    ctx.strokeStyle = ctx.fillStyle = color(mark.bad ? "--degraded" : "--faint");
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash(mark.bad ? [] : [4, 3]);
    ctx.beginPath();
    ctx.moveTo(x, u.bbox.top);
    ctx.lineTo(x, u.bbox.top + u.bbox.height);
    ctx.stroke();
    if (x > free) {
      const { width } = ctx.measureText(mark.text);
      const fits = x + 4 + width <= u.bbox.left + u.bbox.width;
      ctx.fillText(mark.text, fits ? x + 4 : x - 4 - width, u.bbox.top + 11 * devicePixelRatio);
      free = x + 12 * devicePixelRatio + width;
    }
  }
  ctx.restore();
}

/** select shows the times that are brushed where they are now. */
function select(u: uPlot, range?: [number, number]) {
  if (!range) return u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  const most = u.bbox.width / devicePixelRatio;
  const [from = 0, to = 0] = range.map((t) => Math.min(most, Math.max(0, u.valToPos(t, "x"))));
  u.setSelect({ left: from, top: 0, width: to - from, height: u.bbox.height / devicePixelRatio }, false);
}

/** nice is the largest round number up to a number. */
function nice(n: number): number {
  if (n <= 1) return 1;
  const size = 10 ** Math.floor(Math.log10(n));
  return size * Math.max(...[1, 2, 3, 5].filter((m) => m * size <= n));
}

/** labels are those of an axis, none of which is the one before it. */
const labels = (texts: string[]) => texts.map((text, i) => (text === texts[i - 1] ? "" : text));

/** clockOf is a time of a plot. */
const clockOf = (p: Props, t: number) => (p.since ? elapsed(t % 86_400) : secondOf(t));

export function Plot(p: Props) {
  const [shown, show] = useState<number>(); // the point under the cursor
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const latest = useRef(p);
  latest.current = p;
  const dragging = useRef(false);
  const height = p.height ?? 220;

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const make = () => {
      plot.current?.destroy();
      const clock = (u: uPlot, ticks: number[]) => labels(ticks.map((t) => (u.valToPos(t, "x") > u.bbox.width / devicePixelRatio - 20 ? "" : latest.current.since ? elapsed(t % 86_400) : t % 60 ? ":" + String(+(t % 60).toFixed(3)).padStart(2, "0") : minuteOf(t))));
      const axis = { stroke: color("--faint"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 }, font: '11px "IBM Plex Sans", sans-serif' };
      const options: uPlot.Options = {
        width: element.clientWidth,
        height,
        legend: { show: false },
        padding: [8, 8, 0, 0],
        tzDate: (t) => uPlot.tzDate(new Date(t * 1000), "Etc/UTC"),
        cursor: { y: false, points: { show: false }, drag: { x: !!latest.current.onBrush, y: false, setScale: false }, ...(latest.current.sync && { sync: { key: latest.current.sync } }) },
        scales: { y: { range: (_u, _min, max) => [0, Math.max(1, Math.max(max, latest.current.most ?? 0) * 1.08)] } },
        axes: [{ ...axis, size: 28, values: clock }, { ...axis, size: 44, splits: latest.current.height && latest.current.height < 160 ? (_u, _i, _min, max) => [0, nice(max / 1.08)] : undefined, values: (_u, ticks) => labels(ticks.map((v) => (v >= 1000 ? `${v / 1000}k` : String(v)))) }],
        series: [
          {},
          { label: "offered", stroke: color("--ink"), width: 1.25 },
          { label: "admitted", stroke: color("--admitted"), width: 1.5, fill: color("--admitted-fill") },
          { label: "degraded", width: 0, fill: () => hatch(), points: { show: false } },
          { label: "shadow", stroke: color("--shadow"), width: 1.25, dash: [6, 4] },
        ],
        bands: [{ series: [1, 2], fill: color("--denied-fill") }],
        hooks: {
          setCursor: [(u) => show(u.cursor.idx ?? undefined)],
          draw: [
            (u) => {
              drawMarks(u, latest.current.marks ?? []);
              if (!dragging.current) select(u, latest.current.range);
            },
          ],
          setSelect: [
            (u) => {
              const { left, width } = u.select;
              latest.current.onBrush?.(width > 3 ? [u.posToVal(left, "x"), u.posToVal(left + width, "x")] : undefined);
            },
          ],
        },
      };
      plot.current = new uPlot(options, dataOf(latest.current), element);
    };
    make();
    const pressed = (e: Event) => (dragging.current = e.type === "mousedown");
    element.addEventListener("mousedown", pressed);
    addEventListener("mouseup", pressed, true);
    const resize = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height }));
    resize.observe(element);
    const theme = new MutationObserver(make);
    theme.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", make);
    return () => {
      removeEventListener("mouseup", pressed, true);
      resize.disconnect();
      theme.disconnect();
      scheme.removeEventListener("change", make);
      plot.current?.destroy();
    };
  }, [height]);

  useEffect(() => plot.current?.setData(dataOf(p)), [p.times, p.admitted, p.denied, p.degraded, p.shadow, p.marks, p.most, p.range]);

  /** move puts the cursor on a point, or takes it away, as the mouse does. */
  const move = (i?: number) => {
    const u = plot.current;
    const time = i === undefined ? undefined : p.times[Math.min(p.times.length - 1, Math.max(0, i))];
    const { left = 0, top = 0 } = u?.over.getBoundingClientRect() ?? {};
    const place = u && time !== undefined ? { clientX: left + u.valToPos(time, "x"), clientY: top } : undefined;
    u?.over.dispatchEvent(new MouseEvent(place ? "mousemove" : "mouseleave", place));
  };
  const press = (e: KeyboardEvent) => {
    const last = p.times.length - 1;
    const from = shown ?? last;
    const to: Record<string, number | undefined> = { ArrowLeft: from - 1, ArrowRight: from + 1, PageUp: from - 10, PageDown: from + 10, Home: 0, End: last, Escape: undefined };
    if (!(e.key in to)) return;
    e.preventDefault();
    move(to[e.key]);
  };
  return (
    <div class="plot" role="group" tabIndex={0} aria-label={`${p.label}. Arrow keys show values.`} onKeyDown={press} onBlur={() => move()}>
      <div ref={box} aria-hidden="true" />
      <output class="values" style={shown === undefined ? undefined : shown * 2 < p.times.length ? { right: "8px" } : { left: "52px" }}>{shown !== undefined && p.times[shown] !== undefined && <Values of={p} at={shown} />}</output>
    </div>
  );
}

/** Values are those of a point. */
function Values({ of: p, at }: { of: Props; at: number }) {
  const admitted = p.admitted[at] ?? null;
  const value = (swatch: string, name: string, n?: number | null) => <span><span class={"swatch " + swatch} />{name} {amount(n ?? 0)}</span>;
  return (
    <>
      <strong>{clockOf(p, p.times[at] ?? 0)}</strong>
      {admitted === null ? <span>not known: before the start</span> : (
        <>
          {value("offered", "offered", admitted + (p.denied[at] ?? 0))}
          {value("admitted", "admitted", admitted)}
          {value("denied", "denied", p.denied[at])}
          {p.degraded && value("degraded", "degraded", p.degraded[at])}
          {p.shadow?.some((n) => n) && value("shadow", "in shadow", p.shadow[at])}
        </>
      )}
    </>
  );
}

function dataOf(p: Props): uPlot.AlignedData {
  const offered = p.admitted.map((n, i) => (n === null ? null : n + (p.denied[i] ?? 0)));
  const some = (list?: Counts) => list?.map((n) => n || null) ?? p.times.map(() => null);
  return [p.times, offered, p.admitted, some(p.degraded), some(p.shadow)] as uPlot.AlignedData;
}

/** Spark is a small plot of the same: admitted below, denied on top. */
export function Spark({ admitted, denied, shadow, width = 96, height = 20 }: { admitted: Counts; denied: Counts; shadow?: Counts; width?: number; height?: number }) {
  const first = Math.max(0, admitted.findIndex((n) => n !== null)); // what is before is not known
  const sum = (i: number) => (admitted[i] ?? 0) + (denied[i] ?? 0);
  const most = Math.max(1, ...admitted.map((_, i) => sum(i)), ...(shadow ?? []).map((n) => n ?? 0));
  const x = (i: number) => ((i / Math.max(1, admitted.length - 1)) * width).toFixed(1);
  const line = (of: (i: number) => number) => admitted.map((_, i) => `${x(i)},${(height - 1 - (of(i) / most) * (height - 2)).toFixed(1)}`).slice(first);
  const lower = line((i) => admitted[i] ?? 0).join(" ");
  const upper = line(sum).reverse().join(" ");
  return (
    <svg class="spark" width={width} height={height} aria-hidden="true">
      <polygon points={`${x(first)},${height} ${lower} ${width},${height}`} fill="var(--admitted-fill)" />
      <polygon points={`${lower} ${upper}`} fill="var(--denied-fill)" />
      <polyline points={lower} fill="none" stroke="var(--admitted)" />
      {shadow?.some((n) => n) && <polyline points={line((i) => shadow[i] ?? 0).join(" ")} fill="none" stroke="var(--shadow)" stroke-dasharray="3 2" />}
    </svg>
  );
}
