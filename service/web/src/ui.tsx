// Parts that several pages have.

import type { ComponentChildren } from "preact";
import { useEffect, useId, useMemo, useRef, useState } from "preact/hooks";
import { ask, Problem } from "./api";
import { live } from "./live";
import type { Ring } from "./live";
import type { Counts } from "./plot";
import { fullTime, timeOf, timeOfDay } from "./format";
import { yaml } from "./yaml";

export function Panel({ title, scope, children, more }: { title: string; scope?: string; children: ComponentChildren; more?: ComponentChildren }) {
  return (
    <section class="panel" aria-label={title}>
      <header>
        <h2>{title}</h2>
        {more}
        {scope && <span class="scope">{scope}</span>}
      </header>
      {children}
    </section>
  );
}

/** scopeText says whose a figure is. */
export const scopeText = (scope: string | undefined, processes: number) =>
  scope === "all" && processes > 1 ? `all ${processes} processes` : "this process";

export function Time({ micros }: { micros: number }) {
  return <time dateTime={new Date(micros / 1000).toISOString()} title={fullTime(micros)}>{timeOfDay(micros)}</time>;
}

/** address is that of a page with its state, of which only what differs from the initial one is told. */
export function address(page: string, state: Record<string, string>, initial: Record<string, string> = {}): string {
  const told = new URLSearchParams(Object.entries(state).filter(([name, value]) => value !== (initial[name] ?? ""))).toString();
  return "#/" + [page, encodeURIComponent(told).replaceAll("%3D", "=").replaceAll("%26", "&")].filter(Boolean).join("/");
}

/** useKept is a state that stands in the address of a page, so that it can be shared. */
export function useKept<T extends Record<string, string>>(page: string, initial: T, given = ""): [T, (change: Partial<T>) => void] {
  const read = (): T => ({ ...initial, ...Object.fromEntries(new URLSearchParams(given)) });
  const [state, set] = useState<T>(read);
  const written = useRef(given);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => {
    if (given !== written.current) set(read());
    written.current = given;
  }, [given]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const change = (more: Partial<T>) => {
    const next = { ...state, ...more };
    set(next);
    const from = location.hash;
    clearTimeout(timer.current); // a slider changes often, and browsers refuse to write so many addresses
    timer.current = setTimeout(() => {
      if (location.hash !== from) return; // somebody has gone elsewhere, which is about to be shown
      const to = address(page, next, initial);
      written.current = decodeURIComponent(to.slice(page ? page.length + 3 : 2));
      history.replaceState(null, "", to);
      dispatchEvent(new Event("hashchange"));
    }, 150);
  };
  return [state, change];
}

/** useEvery does something again and again while the page is looked at. */
export function useEvery(seconds: number, run: () => void) {
  const latest = useRef(run);
  latest.current = run;
  useEffect(() => {
    const timer = setInterval(() => document.hidden || latest.current(), seconds * 1000);
    return () => clearInterval(timer);
  }, [seconds]);
}

/** at is the address of a page. */
export const at = (...parts: string[]) => "#/" + parts.map(encodeURIComponent).join("/");

/** isRule says of what decided whether it is a rule, and no policy, default or limit of Envoy's. */
export const isRule = (id?: string): boolean => !!id && !/^(policy|algorithm|envoy)\//.test(id);

export function RuleLink({ id }: { id?: string }) {
  // Checks that name no rule are told apart by their policy, or by the algorithm of a default.
  const [kind, name] = id?.split("/", 2) ?? [];
  if (kind === "policy") return <span>policy {name}</span>;
  if (kind === "algorithm") return <span>default {name?.toLowerCase().replaceAll("_", " ")}</span>;
  if (kind === "envoy") return <a href="#/domains" title="of Envoy's rate limit service">{id?.slice(kind.length + 1)}</a>;
  return id ? <a href={at("rules", id)}>{id}</a> : <span class="faint">no rule</span>;
}

export function ClientLink({ name }: { name?: string }) {
  if (name === "*") return <span class="faint" title="The rule counts all requests together.">all together</span>;
  return name ? <a class="mono" href={at("client", name)}>{name}</a> : <span class="faint">none</span>;
}

/** lastSeconds is a ring's last seconds in steps, as a list of sums: null where the process had not started. */
export function lastSeconds(ring: Ring | undefined, now: number, seconds: number, step: number): Counts {
  const sums: Counts = [];
  for (let end = now - seconds + step; end <= now; end += step) sums.push(end < live.started ? null : (ring?.sum(step, end) ?? 0));
  return sums;
}

/** perSecond is the same as rates. */
export const perSecond = (ring: Ring | undefined, now: number, seconds: number, step: number): Counts => lastSeconds(ring, now, seconds, step).map((n) => n && n / step);

/** useAsk asks when the path changes, and again when asked to. */
export function useAsk<T>(path: string | undefined) {
  const [answer, set] = useState<{ body?: T; etag?: string; fault?: Problem; path?: string }>({});
  const [turn, again] = useState(0);
  useEffect(() => {
    if (path === undefined) return;
    let wanted = true;
    ask<T>(path).then(
      ({ body, etag }) => wanted && set({ body, etag, path }),
      (fault: unknown) => wanted && set((known) => ({ ...(known.path === path ? known : {}), fault: fault as Problem, path })),
    );
    return () => void (wanted = false);
  }, [path, turn]);
  const current = answer.path === path ? answer : {};
  return { ...current, again: () => again((n) => n + 1) };
}

export const messageOf = (fault: unknown) => (fault instanceof Error ? fault.message : String(fault));

/** Window draws those rows of a long list that can be seen. */
export function Window<T>({ rows, low, label, head, row, empty }: { rows: T[]; low?: boolean; label?: string; head: ComponentChildren; row: (item: T, i: number) => ComponentChildren; empty: ComponentChildren }) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const [rowHeight, setRowHeight] = useState(32);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = () => {
      setHeight(element.clientHeight || 600);
      setRowHeight(parseInt(getComputedStyle(element).getPropertyValue("--row")) || 32);
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, [rows.length === 0]);
  const margin = 8;
  const from = Math.max(0, Math.floor(top / rowHeight) - margin);
  const to = Math.min(rows.length, Math.ceil((top + height) / rowHeight) + margin);
  const shown = useMemo(() => rows.slice(from, to), [rows, from, to]);
  if (rows.length === 0) return <div class="empty">{empty}</div>;
  return (
    <div class={low ? "window low" : "window"} role="group" aria-label={label} ref={box} tabIndex={0} onScroll={(e) => setTop(e.currentTarget.scrollTop)}>
      <table aria-rowcount={rows.length}>
        <thead>{head}</thead>
        <tbody>
          {from > 0 && <tr aria-hidden="true"><td style={{ height: from * rowHeight + "px", border: 0, padding: 0 }} /></tr>}
          {shown.map((item, i) => row(item, from + i))}
          {to < rows.length && <tr aria-hidden="true"><td style={{ height: (rows.length - to) * rowHeight + "px", border: 0, padding: 0 }} /></tr>}
        </tbody>
      </table>
    </div>
  );
}

/** When is a field for a time as people write it, of which timeOf tells what it is. */
export function When({ label, value, set, sign, size = 18 }: { label: string; value: string; set: (text: string) => void; sign: 1 | -1; size?: number }) {
  const wrong = value.trim() !== "" && timeOf(value, Date.now() * 1000, sign) === undefined;
  const id = useId();
  return (
    <label class="field"><span>{label}</span>
      <input size={size} maxLength={32} list={id} value={value} aria-invalid={wrong || undefined} onInput={(e) => set(e.currentTarget.value)} />
      <datalist id={id}>{["15m", "1h", "1d"].map((span) => <option key={span} value={span} />)}</datalist>
      {wrong && <span class="fault">Not a time: write 2h, 14:05 or 2026-11-27 14:05, in UTC.</span>}
    </label>
  );
}

/** download saves a text as a file. */
export function download(name: string, type: string, text: string) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

/** CopyYAML is a button that copies a value as YAML, for a file or a review. */
export function CopyYAML({ of }: { of: unknown }) {
  const copy = async () => {
    if (!navigator.clipboard) throw new Error("The browser copies over HTTPS only, and on this machine.");
    await navigator.clipboard.writeText(yaml(of));
  };
  return <Act done="copied" run={copy}>Copy as YAML</Act>;
}

/** Act is a button that does something, and says that it is done or why it could not be. */
export function Act({ children, run, confirm, disabled, main, done }: { children: ComponentChildren; run: () => Promise<unknown>; confirm?: string; disabled?: boolean; main?: boolean; done?: string }) {
  const [busy, setBusy] = useState(false);
  const [fault, setFault] = useState("");
  const [told, tell] = useState(false);
  return (
    <>
      <button
        class={main ? "main" : undefined}
        disabled={busy || disabled}
        onClick={() => {
          if (confirm && !window.confirm(confirm)) return;
          setBusy(true);
          setFault("");
          tell(false);
          run().then(() => tell(true)).catch((e: unknown) => setFault(messageOf(e))).finally(() => setBusy(false));
        }}
      >
        {children}
      </button>
      {fault && <span class="fault" role="alert">{fault}</span>}
      {told && done && <span class="done" role="status">{done}</span>}
    </>
  );
}
