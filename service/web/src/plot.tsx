// The wide plot: what was offered, and the part that was admitted; what was denied is the gap between.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { elapsed, minuteOf } from "./format";

const color = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export interface Mark {
  at: number; // Unix seconds
  text: string;
  bad: boolean;
}

interface Props {
  times: number[]; // Unix seconds
  admitted: number[];
  denied: number[];
  degraded?: number[];
  shadow?: number[];
  marks?: Mark[];
  height?: number;
  label: string;
  since?: boolean; // whether times are shown as what has passed since midnight, as those of made-up traffic are
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

export function Plot(p: Props) {
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
      const clock = (u: uPlot, ticks: number[]) => ticks.map((t) => (u.valToPos(t, "x") > u.bbox.width / devicePixelRatio - 20 ? "" : latest.current.since ? elapsed(t % 86_400) : t % 60 ? ":" + String(t % 60).padStart(2, "0") : minuteOf(t)));
      const axis = { stroke: color("--faint"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 }, font: '11px "IBM Plex Sans", sans-serif' };
      const options: uPlot.Options = {
        width: element.clientWidth,
        height,
        legend: { show: false },
        padding: [8, 8, 0, 0],
        cursor: { y: false, x: !!latest.current.onBrush, points: { show: false }, drag: { x: !!latest.current.onBrush, y: false, setScale: false } },
        scales: { y: { range: (_u, _min, max) => [0, Math.max(1, max * 1.08)] } },
        axes: [{ ...axis, size: 28, values: clock }, { ...axis, size: 44, splits: latest.current.height && latest.current.height < 160 ? (_u, _i, _min, max) => [0, nice(max / 1.08)] : undefined, values: (_u, ticks) => ticks.map((v) => (v >= 1000 ? `${v / 1000}k` : String(v))) }],
        series: [
          {},
          { label: "offered", stroke: color("--ink"), width: 1.25 },
          { label: "admitted", stroke: color("--admitted"), width: 1.5, fill: color("--admitted-fill") },
          { label: "degraded", width: 0, fill: () => hatch(), points: { show: false } },
          { label: "shadow", stroke: color("--shadow"), width: 1.25, dash: [6, 4] },
        ],
        bands: [{ series: [1, 2], fill: color("--denied-fill") }],
        hooks: {
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

  useEffect(() => plot.current?.setData(dataOf(p)), [p.times, p.admitted, p.denied, p.degraded, p.shadow, p.marks, p.range]);

  return <div class="plot" ref={box} role="img" aria-label={p.label} />;
}

function dataOf(p: Props): uPlot.AlignedData {
  const offered = p.times.map((_, i) => (p.admitted[i] ?? 0) + (p.denied[i] ?? 0));
  const some = (list?: number[]) => (list?.some((n) => n > 0) ? list.map((n) => n || null) : p.times.map(() => null));
  return [p.times, offered, p.admitted, some(p.degraded), some(p.shadow)] as uPlot.AlignedData;
}

/** Spark is a small plot of the same: admitted below, denied on top. */
export function Spark({ admitted, denied, shadow, width = 96, height = 20 }: { admitted: number[]; denied: number[]; shadow?: number[]; width?: number; height?: number }) {
  const most = Math.max(1, ...admitted.map((n, i) => n + (denied[i] ?? 0)), ...(shadow ?? []));
  const x = (i: number) => ((i / Math.max(1, admitted.length - 1)) * width).toFixed(1);
  const y = (n: number) => (height - 1 - (n / most) * (height - 2)).toFixed(1);
  const line = (of: (i: number) => number) => admitted.map((_, i) => `${x(i)},${y(of(i))}`).join(" ");
  const lower = line((i) => admitted[i] ?? 0);
  const upper = admitted.map((_, i) => `${x(i)},${y((admitted[i] ?? 0) + (denied[i] ?? 0))}`).reverse().join(" ");
  return (
    <svg class="spark" width={width} height={height} aria-hidden="true">
      <polygon points={`0,${height} ${lower} ${width},${height}`} fill="var(--admitted-fill)" />
      <polygon points={`${lower} ${upper}`} fill="var(--denied-fill)" />
      <polyline points={lower} fill="none" stroke="var(--admitted)" />
      {shadow?.some((n) => n > 0) && <polyline points={line((i) => shadow[i] ?? 0)} fill="none" stroke="var(--shadow)" stroke-dasharray="3 2" />}
    </svg>
  );
}
