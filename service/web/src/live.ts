// What the service does now: kept up to date by one stream of events, which all tabs of the browser share.

import { useEffect, useState } from "preact/hooks";
import { ask } from "./api";
import type { Change, Denial, Processes, RuleSeries, Series, Stats, Store, StoreFigures, Top, Totals } from "./api";

const HOUR = 3600;
export const RULE_SECONDS = 300;
const MINUTES = 60;
const DENIALS = 1000;

/** A Ring counts by second: the last of a given number of seconds. */
export class Ring {
  readonly counts: Float64Array;
  constructor(
    readonly size: number,
    public last = 0,
  ) {
    this.counts = new Float64Array(size);
  }

  /** put notes what a second counted, and returns how much more that is than was known. */
  put(second: number, count: number): number {
    if (this.last === 0) this.last = second;
    while (this.last < second) {
      this.last++;
      this.counts[this.last % this.size] = 0;
    }
    if (second <= this.last - this.size) return 0;
    const more = count - this.at(second);
    this.counts[second % this.size] = count;
    return more;
  }

  /** add counts more of a second. */
  add(second: number, more: number) {
    if (more !== 0) this.put(second, this.at(second) + more);
  }

  at(second: number): number {
    return second <= this.last && second > this.last - this.size ? (this.counts[second % this.size] ?? 0) : 0;
  }

  /** sum is what the seconds of (until - seconds, until] counted. */
  sum(seconds: number, until = this.last): number {
    let all = 0;
    for (let s = until - seconds + 1; s <= until; s++) all += this.at(s);
    return all;
  }
}

export interface RuleActivity {
  admitted: Ring;
  denied: Ring;
  shadow: Ring;
  near: Ring; // admitted, with little of a client's limit left
  minutes: { admitted: Ring; denied: Ring; shadow: Ring }; // of the last hour; their seconds are minutes
}

export interface Live {
  state: "connecting" | "live" | "lost" | "refused";
  process: string;
  now: number; // the last second that was told, in Unix seconds
  started: number; // when the process started, in Unix seconds; 0 is not known
  admitted: Ring;
  denied: Ring;
  shadow: Ring;
  degraded: Ring;
  storeMicros: Ring;
  rules: Map<string, RuleActivity>;
  denials: Denial[]; // of this process, the newest first; none of rules in shadow
  changes: Change[];
  store: Store;
  figures: { second: number; of: StoreFigures }[]; // of the last minute, the oldest first
  top?: Top;
  processes?: Processes;
  allDenials: Denial[]; // of all processes, none of rules in shadow
}

const fresh = (): Live => ({
  state: "connecting",
  process: "",
  now: 0,
  started: 0,
  admitted: new Ring(HOUR),
  denied: new Ring(HOUR),
  shadow: new Ring(HOUR),
  degraded: new Ring(HOUR),
  storeMicros: new Ring(HOUR),
  rules: new Map(),
  denials: [],
  changes: [],
  store: { state: "up" },
  figures: [],
  allDenials: [],
});

export let live = fresh();

const listeners = new Set<() => void>();
let announced = 0;

function announce() {
  if (announced) return;
  announced = requestAnimationFrame(() => {
    announced = 0;
    for (const listener of listeners) listener();
  });
}

/** useLive draws the component again whenever something has come. */
export function useLive(): Live {
  const [, draw] = useState(0);
  useEffect(() => {
    const listener = () => draw((n) => n + 1);
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, []);
  return live;
}

function each(series: Series, put: (second: number, i: number) => void) {
  for (let i = 0; i < series.admitted.length; i++) put(series.from + i * series.step, i);
}

function addTotals(t: Totals) {
  each(t, (second, i) => {
    live.admitted.put(second, t.admitted[i] ?? 0);
    live.denied.put(second, t.denied[i] ?? 0);
    live.shadow.put(second, t.shadowDenied[i] ?? 0);
    live.degraded.put(second, t.degraded[i] ?? 0);
    live.storeMicros.put(second, t.storeMicros[i] ?? 0);
    live.now = Math.max(live.now, second);
  });
}

function addRule(r: RuleSeries) {
  let known = live.rules.get(r.rule);
  if (!known) {
    known = { admitted: new Ring(RULE_SECONDS), denied: new Ring(RULE_SECONDS), shadow: new Ring(RULE_SECONDS), near: new Ring(RULE_SECONDS), minutes: { admitted: new Ring(MINUTES), denied: new Ring(MINUTES), shadow: new Ring(MINUTES) } };
    live.rules.set(r.rule, known);
  }
  const { admitted, denied, shadow, near, minutes } = known;
  each(r.seconds, (second, i) => {
    const minute = Math.floor(second / 60);
    minutes.admitted.add(minute, admitted.put(second, r.seconds.admitted[i] ?? 0));
    minutes.denied.add(minute, denied.put(second, r.seconds.denied[i] ?? 0));
    minutes.shadow.add(minute, shadow.put(second, r.seconds.shadowDenied[i] ?? 0));
    near.put(second, r.near?.[i] ?? 0);
  });
  const told = r.minutes;
  if (told) {
    each(told, (second, i) => {
      const minute = second / 60;
      minutes.admitted.put(minute, told.admitted[i] ?? 0);
      minutes.denied.put(minute, told.denied[i] ?? 0);
      minutes.shadow.put(minute, told.shadowDenied[i] ?? 0);
    });
  }
}

function addStore(store: Store, at: number) {
  live.store = store;
  const second = Math.floor(at / 1e6);
  if (!store.figures || (live.figures.at(-1)?.second ?? 0) >= second) return;
  live.figures = [...live.figures.filter((f) => f.second >= second - 60), { second, of: store.figures }];
}

/** newest has each item once, by its key, as it was told last. */
function newest<T extends { seq: number }>(known: T[], more: T[], most: number, key: (item: T) => string): T[] {
  if (more.length === 0) return known;
  const all = new Map<string, T>();
  for (const item of [...known, ...more]) if ((all.get(key(item))?.seq ?? 0) <= item.seq) all.set(key(item), item);
  return [...all.values()].sort((a, b) => b.seq - a.seq).slice(0, most);
}

/** pairOf tells a rule and a client from others. */
export const pairOf = (d: Denial) => `${d.shadow ? "shadow" : ""}/${d.rule ?? ""}/${d.client ?? ""}`;

const newestChanges = (more: Change[]) => newest(live.changes, more, 1000, (c) => String(c.seq));

function addDenials(more: Denial[]) {
  live.denials = newest(live.denials, more.filter((d) => !d.shadow), DENIALS, pairOf);
}

function addStats(s: Stats) {
  if (live.process && live.process !== s.process) {
    const { state } = live;
    live = { ...fresh(), state };
  }
  live.process = s.process;
  addTotals(s.totals);
  s.rules.forEach(addRule);
  live.changes = newestChanges(s.changes);
  addStore(s.store, s.at);
}

interface Shared {
  processes: Processes;
  top: Top;
  denials: { denials: Denial[] };
}

function addProcesses(p: Processes) {
  live.processes = p;
  live.started = Math.floor((p.processes.find((one) => one.self)?.startedAt ?? 0) / 1e6);
}

function addShared(s: Shared) {
  addProcesses(s.processes);
  live.top = s.top;
  live.allDenials = s.denials.denials.filter((d) => !d.shadow);
}

type Tick = { at: number; totals: Totals; rules: RuleSeries[]; store: Store; denials: Denial[]; changes: Change[] };
type Snapshot = { stats: Stats; denials: Denial[]; shared: Shared };

/** A Message is what the stream's worker tells a tab. */
export type Message = { kind: "snapshot" | "second" | "shared"; data: unknown } | { kind: "state"; data: Live["state"] };

function receive(m: Message) {
  switch (m.kind) {
    case "state":
      live.state = m.data;
      break;
    case "snapshot": {
      const s = m.data as Snapshot;
      addStats(s.stats);
      addDenials(s.denials);
      addShared(s.shared);
      break;
    }
    case "second": {
      const tick = m.data as Tick;
      addTotals(tick.totals);
      tick.rules.forEach(addRule);
      addStore(tick.store, tick.at);
      addDenials(tick.denials);
      live.changes = newestChanges(tick.changes);
      break;
    }
    case "shared":
      addShared(m.data as Shared);
  }
  announce();
}

/** read asks for what was before this tab was there. */
async function read() {
  const [stats, denials, top, processes] = await Promise.all([
    ask<Stats>("/api/v1/stats"),
    ask<{ denials: Denial[] }>("/api/v1/denials?limit=1000&scope=process&shadow=false"),
    ask<Top>("/api/v1/top"),
    ask<Processes>("/api/v1/processes"),
  ]);
  addStats(stats.body);
  addDenials(denials.body.denials);
  addProcesses(processes.body); // those of all processes come with the next event
  live.top = top.body;
  announce();
}

let started = false;

/** start reads what was, and follows what comes. */
export function start() {
  if (started) return;
  started = true;
  void read().catch(() => {});
  if (typeof SharedWorker === "undefined") {
    void import("./stream").then(({ follow }) => follow("/api/v1/events", receive));
    return;
  }
  const worker = new SharedWorker(new URL("./stream.worker.ts", import.meta.url), { type: "module", name: "stint-events" });
  worker.port.onmessage = (event: MessageEvent<Message>) => {
    if (event.data.kind === "state" && event.data.data === "live" && live.state === "lost") void read().catch(() => {});
    receive(event.data);
  };
  worker.port.start();
  addEventListener("pagehide", () => worker.port.postMessage("leave"));
  addEventListener("pageshow", (event) => event.persisted && location.reload()); // a page that comes back has left
}
