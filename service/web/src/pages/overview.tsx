// What happens now, to whom, by which rule.

import { useEffect, useMemo, useState } from "preact/hooks";
import { ask } from "../api";
import type { Denial, Top } from "../api";
import { pairOf, RULE_SECONDS, useLive } from "../live";
import type { Live, RuleActivity } from "../live";
import { Plot } from "../plot";
import type { Mark } from "../plot";
import { bytes, compact, duration, integer, rate, share, timeOf, timeOfDay } from "../format";
import { at, ClientLink, Panel, perSecond, RuleLink, scopeText, Time, useKept, When, Window } from "../ui";

const spans = [
  { name: "5 min", seconds: 300 },
  { name: "15 min", seconds: 900 },
  { name: "1 h", seconds: 3600 },
];

/** stepOf is how many seconds one point of the plot has. */
const stepOf = (seconds: number) => (seconds <= 300 ? 1 : seconds <= 900 ? 5 : 15);

type Range = [number, number];

/** windowOf says of what time and of which processes the figures of the overview are, and how many seconds that is. */
function windowOf(live: Live, top: Top): { text: string; seconds: number } {
  const started = Math.min(...(live.processes?.processes ?? []).map((p) => p.startedAt));
  const seconds = Math.max(1, Math.round((top.at - Math.max(top.from, started)) / 1e6));
  return { text: `${scopeText(top.scope, top.processes)}, last ${duration(seconds * 1e6)}`, seconds };
}

/** oldestStart is when the first of the processes started, in Unix seconds. */
const oldestStart = (live: Live) => Math.min(...(live.processes?.processes ?? []).map((p) => p.startedAt)) / 1e6;

/** hourOf is the last part of the hour that all processes count, per second: null where none had started. */
function hourOf(series: Top["series"], span: number, started: number) {
  const { from, step } = series;
  const first = Math.max(0, series.admitted.length - span / step);
  const times = series.admitted.slice(first).map((_, i) => from + (first + i + 1) * step);
  const per = (counts: number[]) => counts.slice(first).map((n, i) => ((times[i] ?? 0) <= started ? null : n / step));
  return { times, admitted: per(series.admitted), denied: per(series.denied), degraded: per(series.degraded), shadow: per(series.shadowDenied) };
}

function Sentence({ live, top }: { live: Live; top: Top }) {
  const { admitted, denied, degraded } = top.total;
  const all = admitted + denied;
  const { text, seconds } = windowOf(live, top);
  const denying = top.rules.filter((r) => r.denied > 0).length;
  const near = top.rules.filter((r) => r.near > 0).length;
  return (
    <h1 class="lead">
      {all === 0 ? "No requests" : <><span class={denied ? "denied" : ""}>{share(denied, all)} denied</span> of {rate(all / seconds)}</>}
      {"; "}
      {denying === 0 ? "no rule denies" : denying === 1 ? "1 rule denies" : `${denying} rules deny`}
      {near > 0 && <span title="They left a client a fifth of its limit or less.">{"; "}{near} {near === 1 ? "rule" : "rules"} near {near === 1 ? "its" : "their"} limit</span>}
      {"; "}
      {live.store.state === "up" ? "store healthy" : <span class="degraded">store unreachable{live.store.since ? ` since ${timeOfDay(live.store.since)}` : ""}</span>}
      {degraded > 0 && <>; <span class="degraded">{compact(degraded)} decided by the failure policy</span></>}
      <span class="faint"> ({text})</span>
    </h1>
  );
}

export function marksOf(live: Live): Mark[] {
  return live.changes
    .map((c) => ({
      at: c.at / 1e6,
      bad: c.kind === "store" && c.state !== "up",
      text: c.kind === "rules" ? (revisionOf(c.state) ? `revision ${c.state}` : "rules") : c.state === "up" ? "store back" : "store unreachable",
    }))
    .sort((a, b) => a.at - b.at);
}

function within(range: Range | undefined, micros: number) {
  return !range || (micros / 1e6 >= range[0] && micros / 1e6 <= range[1]);
}

/** around is five minutes with a time in their middle. */
function around(time: string): Range | undefined {
  const middle = timeOf(time, Date.now() * 1000, -1);
  return middle === undefined ? undefined : [middle / 1e6 - 150, middle / 1e6 + 150];
}

export function Overview({ state: given, writes }: { state?: string; writes: boolean }) {
  const live = useLive();
  const [time, setTime] = useState("");
  const [kept, keep] = useKept("", { span: "300", from: "", to: "" }, given);
  const span = spans.find((s) => String(s.seconds) === kept.span)?.seconds ?? 300;
  const from = Number(kept.from);
  const to = Number(kept.to);
  const range = useMemo((): Range | undefined => (from > 0 && to > from ? [from, to] : undefined), [from, to]);
  const setRange = (r?: Range) => {
    const old = r && r[0] < live.now - span; // it is seen only if the plot goes back so far
    keep({ ...(old && { span: "3600" }), from: r ? String(Math.floor(r[0])) : "", to: r ? String(Math.ceil(r[1])) : "" });
  };
  // The page has the last denials. A time that goes back further keeps those that there were when it was chosen, and asks for older ones.
  const some = live.denials.length > 0;
  const known = useMemo(() => live.denials, [range, some]);
  const [older, setOlder] = useState<Denial[]>([]);
  useEffect(() => {
    setOlder([]);
    let wanted = range !== undefined;
    const read = async (before: Denial | undefined, found: Denial[]): Promise<void> => {
      if (!range || !before || before.at / 1e6 < range[0] || before.seq <= 1) return;
      const { body } = await ask<{ denials: Denial[] }>(`/api/v1/denials?scope=process&shadow=false&limit=1000&before=${before.seq}`);
      if (!wanted || body.denials.length === 0) return;
      const all = [...found, ...body.denials];
      setOlder(all);
      return read(all.at(-1), all);
    };
    void read(known.at(-1), []).catch(() => {}); // what is shown says how far it goes back
    return () => void (wanted = false);
  }, [range, known]);
  const denials = useMemo(() => {
    const last = live.denials.at(-1)?.seq ?? 0;
    if (!range) return live.denials;
    const told = new Set(live.denials.map(pairOf));
    return [...live.denials, ...[...known, ...older].filter((d) => d.seq < last && !told.has(pairOf(d)))];
  }, [live.denials, known, older, range]);
  const step = stepOf(span);
  const until = live.now - (live.now % step);
  const plot = useMemo(() => {
    const times: number[] = [];
    for (let t = until - span + step; t <= until; t += step) times.push(t);
    const per = (ring: Live["admitted"]) => perSecond(ring, until, span, step);
    return { times, admitted: per(live.admitted), denied: per(live.denied), degraded: per(live.degraded), shadow: per(live.shadow), marks: marksOf(live) };
  }, [until, span, live.changes, live.started]);
  const { started, top } = live;
  const processes = live.processes?.processes.length ?? 1;
  const all = processes > 1 && !range ? top?.series : undefined; // a time that was chosen is of this process
  const plotOfAll = useMemo(() => all && { ...hourOf(all, span, oldestStart(live)), marks: marksOf(live) }, [all, span, live.changes]);
  if (live.now === 0 || !top) return <p class="empty">{live.state === "connecting" ? "Reading what happened…" : "Nothing is known yet."}</p>;
  if (live.admitted.sum(3600) + live.denied.sum(3600) + top.total.admitted + top.total.denied === 0 && live.rules.size === 0) return <><Sentence live={live} top={top} /><Empty /></>;
  return (
    <>
      <Sentence live={live} top={top} />
      <div class="row">
        <ul class="legend">
          <li><span class="swatch offered" />offered</li>
          <li><span class="swatch admitted" />admitted</li>
          <li><span class="swatch denied" />denied</li>
          <li><span class="swatch degraded" />degraded</li>
          <li><span class="swatch shadow" />denied in shadow</li>
        </ul>
        <span style={{ flex: 1 }} />
        {spans.map((s) => (
          <button key={s.name} class="plain" aria-pressed={span === s.seconds} onClick={() => keep({ span: String(s.seconds) })}>
            {s.name}
          </button>
        ))}
        <form class="around" onSubmit={(e) => { e.preventDefault(); setRange(around(time)); }}>
          <When label="Around" size={8} sign={-1} value={time} set={setTime} />
          <button type="submit">Show</button>
        </form>
        <span class="faint hide-narrow">requests per second, {plotOfAll && top ? scopeText(top.scope, top.processes) : "this process"}</span>
      </div>
      <Plot {...(plotOfAll ?? plot)} label={`Requests per second over the last ${span / 60} minutes: offered, admitted, and denied as the gap between`} range={range} onBrush={setRange} />
      {range && (
        <div class="row" role="status">
          <span>
            {timeOfDay(range[0] * 1e6)} to {timeOfDay(range[1] * 1e6)}:{" "}
            {range[1] < started ? `this process started at ${timeOfDay(started * 1e6)}, and knows nothing of before.` : range[1] < live.now - 3600 ? "counts are kept for one hour only; changes and revisions are kept longer." : `${integer(sumOver(live.denied, range))} denied of ${integer(sumOver(live.denied, range) + sumOver(live.admitted, range))}.`}
          </span>
          <button onClick={() => setRange()}>Show what happens now</button>
        </div>
      )}
      <section aria-label="What was decided">
        <h2 class="group">{range ? `This process, ${timeOfDay(range[0] * 1e6)} to ${timeOfDay(range[1] * 1e6)}` : capital(windowOf(live, top).text)}</h2>
        <div class="panels">
          <div>
            <Rules live={live} top={top} range={range} denials={denials} writes={writes} />
            <Denials live={live} range={range} denials={denials} processes={processes} />
          </div>
          <div>
            <Tops top={top} range={range} denials={denials} />
            <Processes live={live} />
          </div>
        </div>
      </section>
      <section aria-label="This process">
        <h2 class="group">This process</h2>
        <div class="panels">
          <div><Changes live={live} range={range} /></div>
          <div><StorePanel live={live} /></div>
        </div>
      </section>
    </>
  );
}

const capital = (text: string) => text.slice(0, 1).toUpperCase() + text.slice(1);

function sumOver(ring: Live["admitted"], [from, to]: Range) {
  return ring.sum(Math.max(1, Math.floor(to) - Math.ceil(from) + 1), Math.floor(to));
}

/** deniedBy are the clients that each rule denied for the first time before the end of a time and for the last time after its beginning, with how often it denied them in all. */
function deniedBy(denials: Denial[], from: number, to: number) {
  const found = new Map<string, Map<string, { count: number; reason?: string }>>();
  for (const d of denials) {
    if (d.at / 1e6 < from || d.first / 1e6 > to) continue;
    const rule = d.rule ?? "";
    const clients = found.get(rule) ?? new Map<string, { count: number; reason?: string }>();
    found.set(rule, clients);
    clients.set(d.client ?? "", { count: d.count, reason: d.reason });
  }
  return found;
}

/** oldest is when the first of the denials that are known was, in Unix seconds. */
const oldest = (denials: Denial[]) => (denials.at(-1)?.at ?? 0) / 1e6;

interface RuleRow {
  id: string;
  denied: number;
  shadow: number;
  all: number;
  clients: number; // that were denied
  near?: number;
}

/** rowsOf are rules by what they decided in a time, in this process. */
function rowsOf(live: Live, range: Range, denials: Denial[]): RuleRow[] {
  // Seconds are kept for five minutes, minutes for an hour.
  const minutes = range[0] < live.now - RULE_SECONDS;
  const count = (r: RuleActivity, of: "admitted" | "denied" | "shadow") =>
    minutes ? sumOver(r.minutes[of], [Math.floor(range[0] / 60), Math.floor((range[1] - 1) / 60)]) : sumOver(r[of], range);
  const clients = deniedBy(denials, range[0], range[1]);
  return [...live.rules]
    .map(([id, r]) => ({ id, denied: count(r, "denied"), shadow: count(r, "shadow"), all: count(r, "denied") + count(r, "admitted") + count(r, "shadow"), clients: clients.get(id)?.size ?? 0 }))
    .filter((row) => row.all > 0)
    .sort((a, b) => b.denied - a.denied || b.shadow - a.shadow || b.all - a.all);
}

function Rules({ live, top, range, denials, writes }: { live: Live; top: Top; range?: Range; denials: Denial[]; writes: boolean }) {
  const rows = (range ? rowsOf(live, range, denials) : top.rules.map((r): RuleRow => ({ id: r.rule, denied: r.denied, shadow: r.shadowDenied, all: r.admitted + r.denied + r.shadowDenied, clients: r.deniedClients, near: r.near }))).slice(0, 12);
  // How many clients were denied is a least number where not all are known.
  const least = range ? denials.length >= 1000 && oldest(denials) > range[0] : top.rules.reduce((sum, r) => sum + r.deniedClients, 0) >= 100;
  return (
    <Panel title="Rules by denials" scope={range && range[0] < live.now - RULE_SECONDS ? "whole minutes" : ""} more={writes && <a href="#/simulate/least=0.99&run=1" title="Finds, from what was asked lately, the least limit of each rule that never denies 99 % of its clients.">suggest limits</a>}>
      {rows.length === 0 ? <p class="empty">No rule has decided anything{range && " then"}.</p> : (
        <table>
          <thead><tr><th>rule</th><th class="n">denied</th><th class="n">share</th><th class="n hide-narrow">requests</th><th class="n" title="different clients that were denied">clients</th>{!range && <th class="n" title="admitted requests that left a client a fifth of its limit or less">near limit</th>}</tr></thead>
          <tbody>
            {rows.map(({ id, denied, shadow, all, clients, near }) => (
              <tr key={id}>
                <td><RuleLink id={id} /></td>
                <td class={denied ? "n denied" : "n"}>{shadow > 0 && <span class="shadow">{compact(shadow)} in shadow</span>}{denied > 0 && shadow > 0 && ", "}{(denied > 0 || shadow === 0) && compact(denied)}</td>
                <td class="n">{share(denied + shadow, all)}</td>
                <td class="n hide-narrow">{compact(all)}</td>
                <td class="n">{clients > 0 && (least ? "≥ " : "") + compact(clients)}</td>
                {!range && <td class="n">{near ? compact(near) : ""}</td>}
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Panel>
  );
}

function Tops({ top, range, denials }: { top: Top; range?: Range; denials: Denial[] }) {
  const [chosen, choose] = useState<"denied" | "clients" | "shadowDenied">("denied");
  const by = range ? "denied" : chosen;
  const denied = by === "denied";
  const known = deniedBy(denials, range?.[0] ?? 0, range?.[1] ?? Infinity);
  const list = range
    ? [...known].flatMap(([rule, clients]) => [...clients].map(([client, { count }]) => ({ rule, client, count, error: 0 }))).sort((a, b) => b.count - a.count)
    : top[by];
  const most = Math.max(1, ...list.map((t) => t.count));
  const part = range && oldest(denials) > range[0] && denials.length >= 1000;
  return (
    <Panel
      title="Clients"
      scope={part ? `since ${timeOfDay(oldest(denials) * 1e6)}` : ""}
      more={<>
        <button class="plain" aria-pressed={denied} onClick={() => choose("denied")}>most denied</button>
        {!range && <button class="plain" aria-pressed={by === "clients"} onClick={() => choose("clients")}>heaviest</button>}
        {!range && <button class="plain" aria-pressed={by === "shadowDenied"} onClick={() => choose("shadowDenied")}>in shadow</button>}
      </>}
    >
      {list.length === 0 ? <p class="empty">{{ denied: "Nobody was denied.", clients: "Nobody has asked.", shadowDenied: "Rules in shadow would have denied nobody." }[by]}</p> : (
        <table>
          <thead><tr><th>client</th><th>rule</th>{denied && <th>why</th>}<th class="n">{{ denied: range ? "denied in all" : "denied", clients: "requests", shadowDenied: <span class="shadow">denied in shadow</span> }[by]}</th><th class="hide-narrow" /></tr></thead>
          <tbody>
            {list.slice(0, 12).map((t) => (
              <tr key={t.rule + "/" + t.client}>
                <td><ClientLink name={t.client} /></td>
                <td><RuleLink id={t.rule} /></td>
                {denied && <td>{reasonText(known.get(t.rule)?.get(t.client)?.reason)}</td>}
                <td class="n" title={t.error ? `at most ${integer(t.count)}, at least ${integer(t.count - t.error)}` : undefined}>{t.error > 0 ? "≤ " : ""}{compact(t.count)}</td>
                <td class="hide-narrow" style={{ width: "20%" }}><span class={denied ? "bar denied" : "bar"} style={{ width: (100 * t.count) / most + "%" }} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Panel>
  );
}

function Denials({ live, range, denials, processes }: { live: Live; range?: Range; denials: Denial[]; processes: number }) {
  const shared = processes > 1 && !range;
  const rows = (shared ? live.allDenials : denials).filter((d) => !range || (d.at / 1e6 >= range[0] && d.first / 1e6 <= range[1])).slice(0, range ? 500 : 12);
  return (
    <Panel title={range ? "Denials then" : "Last denials"} more={<a href="#/denials">search</a>}>
      <Window
        low
        label="Denials"
        rows={rows}
        empty={<p>{range && denials.length >= 1000 && oldest(denials) > range[1] ? `The denials that are known go back to ${timeOfDay(oldest(denials) * 1e6)}.` : "Nothing was denied."}</p>}
        head={<tr><th class="t">last</th><th class="c">client</th><th>rule</th><th>reason</th><th class="n">denied</th></tr>}
        row={(d) => (
          <tr key={pairOf(d)}>
            <td><Time micros={d.at} /></td>
            <td><ClientLink name={d.client} /></td>
            <td><RuleLink id={d.rule} /></td>
            <td><Why of={d} /></td>
            <td class="n">{compact(d.count)}</td>
          </tr>
        )}
      />
    </Panel>
  );
}

export const reasons: Record<string, string> = {
  limit: "over the limit",
  min_interval: "too soon",
  never: "cost above the limit",
  blocked: "denied too often",
  banned: "banned",
  missing: "attribute missing",
  default: "no rule matches",
  holds: "too many holds",
};
export const reasonText = (reason?: string) => (reason ? (reasons[reason] ?? reason) : "");

/** Why is the reason of a denial, with the request's class, marked if a rule in shadow would have denied. */
export const Why = ({ of }: { of: Denial }) => <>{reasonText(of.reason)}{of.class && `, class ${of.class}`}{of.shadow && <span class="shadow"> in shadow</span>}</>;

function StorePanel({ live }: { live: Live }) {
  const checks = live.admitted.sum(60, live.now) + live.denied.sum(60, live.now);
  let micros = 0;
  let seconds = 0;
  for (let s = live.now - 59; s <= live.now; s++) {
    if (live.storeMicros.at(s) > 0) {
      micros += live.storeMicros.at(s);
      seconds++;
    }
  }
  return (
    <Panel title="Store" scope="last minute">
      <table>
        <tbody>
          <tr><td>state</td><td class={live.store.state === "up" ? "n" : "n degraded"}>{live.store.state}{live.store.unreachableShards ? `, ${live.store.unreachableShards} parts unreachable` : ""}</td></tr>
          <tr><td>time to decide, on average</td><td class="n">{seconds ? duration(micros / seconds) : "–"}</td></tr>
          <tr><td>decided by the store</td><td class="n">{compact(checks - live.degraded.sum(60, live.now))}</td></tr>
          <tr><td>decided by the failure policy</td><td class={live.degraded.sum(60, live.now) ? "n degraded" : "n"}>{compact(live.degraded.sum(60, live.now))}</td></tr>
          {live.figures.length > 0 && <Figures live={live} />}
        </tbody>
      </table>
    </Panel>
  );
}

/** Figures are the store's own: memory and evictions as they are, the rest over the last minute, or as long as the page has looked. */
function Figures({ live }: { live: Live }) {
  const last = live.figures.at(-1)?.of;
  const first = live.figures[0]?.of;
  if (!last || !first) return null;
  const shared = last.scope === "all";
  const calls = last.calls - first.calls;
  const operations = last.operations - first.operations;
  const hits = last.denialHits - first.denialHits;
  return (
    <>
      {shared && (
        <>
          <tr><td>batch size, on average</td><td class="n">{calls ? (operations / calls).toFixed(1) : "–"}</td></tr>
          <tr><td>denied from the denial cache</td><td class="n">{compact(hits)}</td></tr>
        </>
      )}
      <tr><td>memory, {shared ? "all processes" : "this process"}</td><td class="n">{last.usedBytes ? bytes(last.usedBytes) : "not known"}{last.maxBytes > 0 && ` of ${bytes(last.maxBytes)}`}</td></tr>
      <tr title="since the start"><td>evictions, {shared ? "all processes" : "this process"}</td><td class={last.evictions ? "n degraded" : "n"}>{compact(last.evictions)}</td></tr>
    </>
  );
}

/** revisionOf is the number of a revision of rules that can be looked at; rules that no store keeps have a digest. */
const revisionOf = (state: string) => (/^\d+$/.test(state) ? state : undefined);

function RevisionLink({ state }: { state: string }) {
  const number = revisionOf(state);
  return number ? <a href={at("revisions", number)}>revision {number}</a> : <a href="#/revisions">rules</a>;
}

function Changes({ live, range }: { live: Live; range?: Range }) {
  const rows = live.changes.filter((c) => within(range, c.at));
  return (
    <Panel title={range ? "What changed then" : "What changed"} scope={range ? "" : "since its start"} more={<a href="#/revisions">all revisions</a>}>
      <Window
        low
        label="What changed"
        rows={rows}
        empty={<p>Neither the rules nor the store's state {range ? "changed then" : "have changed"}.</p>}
        head={<tr><th>time</th><th>what</th><th style={{ width: "50%" }}>detail</th></tr>}
        row={(c) => (
          <tr key={c.seq}>
            <td><Time micros={c.at} /></td>
            <td>{c.kind === "rules" ? <RevisionLink state={c.state} /> : <span class={c.state === "up" ? "" : "degraded"}>store {c.state}</span>}</td>
            <td class="faint" title={c.detail}>{c.detail}</td>
          </tr>
        )}
      />
    </Panel>
  );
}

function Processes({ live }: { live: Live }) {
  const list = live.processes?.processes ?? [];
  return (
    <Panel title="Processes" scope="requests per second, last 10 s">
      <table>
        <thead><tr><th>process</th><th class="hide-narrow">version</th><th class="n">revision</th><th class="n">admitted</th><th class="n">denied</th><th>store</th></tr></thead>
        <tbody>
          {list.map((p) => (
            <tr key={p.name}>
              <td title={p.name}>{p.host || p.name}{list.some((o) => o !== p && o.host === p.host) && p.host && ` ${p.name}`}{p.self && <span class="faint"> (this)</span>}</td>
              <td class="hide-narrow">{p.version}</td>
              <td class="n" title={p.revision}>{revisionOf(p.revision) ? <a href={at("revisions", p.revision)}>{p.revision}</a> : p.revision ? p.revision.replace("sha256:", "") : "–"}</td>
              <td class="n">{rate(p.rates.admitted)}</td>
              <td class={p.rates.denied ? "n denied" : "n"}>{rate(p.rates.denied)}</td>
              <td class={p.store.state === "up" ? "" : "degraded"}>{p.store.state}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Panel>
  );
}

function Empty() {
  const [, scheme = "http", listens = "0.0.0.0", port = ":8080"] = /^(https?):\/\/(.*)(:\d+)$/.exec(useLive().processes?.processes.find((p) => p.self)?.api ?? "") ?? [];
  const here = location.hostname.includes(":") ? `[${location.hostname}]` : location.hostname;
  const api = scheme + "://" + (["", "0.0.0.0", "[::]"].includes(listens) ? here : listens) + (port === ":0" ? ":PORT" : port);
  return (
    <div class="empty">
      <p>No request has come to this service yet. Send one:</p>
      <pre>curl -i '{api}/api/v1/rate-limit/check?key=user:123'</pre>
      <p>Or let rules decide. <a href="#/rules">Make the first rule</a>, then:</p>
      <pre>{`curl -i ${api}/api/v1/rate-limit/evaluate -d '{"method": "GET", "path": "/", "ip": "192.0.2.1"}'`}</pre>
      <p>To look around with made-up traffic, start <code>stint serve --demo</code>.</p>
    </div>
  );
}
