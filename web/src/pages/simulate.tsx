// What rules would do: to made-up traffic, to a log, or to what this service decided lately. And the playground:
// all five algorithms on one pattern.

import { useEffect, useMemo, useState } from "preact/hooks";
import { ask } from "../api";
import type { Rule, Suggestion } from "../api";
import { compact, duration, share } from "../format";
import { Plot } from "../plot";
import { Act, at, messageOf, Panel, useAsk } from "../ui";
import { yaml } from "../yaml";
import { what } from "./rules";

interface Step {
  admitted: number;
  denied: number;
  shadow?: number;
}
interface RuleReport {
  rule?: string;
  requests: number;
  admitted: number;
  denied: number;
  shadow: number;
  clients?: number;
  clientsDenied?: number;
  longestShut?: number;
  longestDelay: number;
  limits?: { limit: string; peak: number; clientPeak: number; span: number; atLeast?: boolean }[];
  mostDenied?: { key: string; admitted: number; denied: number; shut: number }[];
}
interface CandidateReport {
  name: string;
  total: RuleReport;
  rules: RuleReport[] | null;
  stepFrom: number;
  step: number;
  steps: Step[] | null;
}
interface Report {
  events: number;
  first: number;
  last: number;
  input?: { format: string; lines: number; malformed: number; firstMalformed?: string };
  candidates: CandidateReport[];
  notes: string[];
  leftOut?: number;
  suggestions?: Suggestion[];
}
interface Pattern {
  name: string;
  seed: number;
  rate: number;
  clients: number;
  length: string;
  window: string;
}

async function simulate(request: unknown, log?: File): Promise<Report> {
  const form = new FormData();
  form.set("request", JSON.stringify(request));
  if (log) form.set("log", log);
  return (await ask<Report>("/api/v1/simulate", { method: "POST", form })).body;
}

const patterns: Record<string, string> = {
  "boundary-burst": "a burst just before and just after a boundary of windows",
  steady: "evenly spaced",
  poisson: "by chance, at one rate",
  diurnal: "a day, with its peak",
  spike: "calm, and a sudden crowd",
  "retry-storm": "denied clients come again, more and more",
};

/** kept is a state that stands in the address, so that it can be shared. */
function useKept<T extends Record<string, string>>(page: string, initial: T, given?: string): [T, (change: Partial<T>) => void] {
  const [state, set] = useState<T>(() => ({ ...initial, ...Object.fromEntries(new URLSearchParams(given ?? "")) }));
  const change = (more: Partial<T>) => {
    const next = { ...state, ...more };
    set(next);
    history.replaceState(null, "", at(page, new URLSearchParams(next).toString()));
  };
  return [state, change];
}

const algorithmNames: Record<string, string> = {
  token_bucket: "Token bucket",
  leaky_bucket: "Leaky bucket",
  fixed_window: "Fixed window",
  sliding_window_log: "Sliding window log",
  sliding_window_counter: "Sliding window counter",
};

function Choice({ name, label, value, options, set }: { name: string; label: string; value: string; options: string[]; set: (v: string) => void }) {
  return (
    <label class="field"><span>{label}</span>
      <select name={name} value={value} onChange={(e) => set(e.currentTarget.value)}>{options.map((o) => <option key={o}>{o}</option>)}</select>
    </label>
  );
}

function Slide({ label, value, least, most, step, set, unit }: { label: string; value: string; least: number; most: number; step: number; set: (v: string) => void; unit?: string }) {
  return (
    <label class="field"><span>{label}: {value}{unit}</span>
      <input type="range" min={least} max={most} step={step} value={value} onInput={(e) => set(e.currentTarget.value)} />
    </label>
  );
}

export function Playground({ state: given }: { state?: string }) {
  const [s, set] = useKept("playground", { pattern: "boundary-burst", limit: "100", window: "1m", rate: "33", clients: "1", length: "2m", seed: "1" }, given);
  const [report, setReport] = useState<Report>();
  const [fault, setFault] = useState("");
  const request = JSON.stringify({
    budget: `${s.limit}/${s.window}`,
    pattern: { name: s.pattern, seed: Number(s.seed), rate: Number(s.rate), clients: Number(s.clients), length: s.length, window: s.window } satisfies Pattern,
  });
  useEffect(() => {
    let wanted = true;
    const timer = setTimeout(() => {
      simulate(JSON.parse(request)).then(
        (r) => wanted && (setReport(r), setFault("")),
        (e: unknown) => wanted && setFault(messageOf(e)),
      );
    }, 200);
    return () => {
      wanted = false;
      clearTimeout(timer);
    };
  }, [request]);
  const names = Object.keys(patterns);
  return (
    <>
      <h1 class="lead">Five algorithms, one pattern: {patterns[s.pattern]}</h1>
      <div class="row">
        <Choice name="pattern" label="Pattern" value={s.pattern} options={names} set={(pattern) => set({ pattern })} />
        <Slide label="Limit" value={s.limit} least={1} most={500} step={1} set={(limit) => set({ limit })} />
        <Choice name="window" label="per" value={s.window} options={["10s", "1m", "10m", "1h"]} set={(window) => set({ window })} />
        <Slide label="Requests per second" value={s.rate} least={1} most={200} step={1} set={(rate) => set({ rate })} />
        <Slide label="Clients" value={s.clients} least={1} most={200} step={1} set={(clients) => set({ clients })} />
        <Choice name="length" label="for" value={s.length} options={["1m", "2m", "10m", "1h", "1d"]} set={(length) => set({ length })} />
        <Slide label="Seed" value={s.seed} least={1} most={50} step={1} set={(seed) => set({ seed })} />
      </div>
      {fault && <p class="fault" role="alert">{fault}</p>}
      <div class="two">
        <div>{report?.candidates.map((c) => <CandidatePlot key={c.name} candidate={c} title={algorithmNames[c.name] ?? c.name} height={120} />)}</div>
        <Guide />
      </div>
    </>
  );
}

function CandidatePlot({ candidate: c, title, height }: { candidate: CandidateReport; title: string; height: number }) {
  const data = useMemo(() => {
    const steps = c.steps ?? [];
    return {
      times: steps.map((_, i) => (c.stepFrom + i * c.step) / 1e6),
      admitted: steps.map((s) => s.admitted),
      denied: steps.map((s) => s.denied),
      shadow: steps.map((s) => s.shadow ?? 0),
    };
  }, [c]);
  const limit = c.rules?.[0]?.limits?.[0];
  return (
    <section>
      <h2>{title} <span class="faint">{share(c.total.denied, c.total.requests)} denied{limit && `; at most ${limit.atLeast ? "≥ " : ""}${compact(limit.clientPeak)} of one client in ${duration(limit.span)}`}{c.total.longestDelay > 0 && `; held up to ${duration(c.total.longestDelay)}`}</span></h2>
      <Plot {...data} height={height} label={`${title}: offered and admitted requests per ${duration(c.step)}`} />
    </section>
  );
}

function Guide() {
  return (
    <section class="panel">
      <header><h2>Which one?</h2></header>
      <ul>
        <li>Short bursts are fine, the average counts: <strong>token bucket</strong>. The default.</li>
        <li>What comes after must see an even pace, and requests may wait: <strong>leaky bucket</strong>.</li>
        <li>A quota by the calendar, such as 1,000 a day: <strong>fixed window</strong>. Twice the limit may pass around a boundary.</li>
        <li>Never more than N in any window, and N is small, such as logins: <strong>sliding window log</strong>.</li>
        <li>Nearly that for large N, in little memory: <strong>sliding window counter</strong>.</li>
      </ul>
    </section>
  );
}

export function Simulate({ writes }: { writes: boolean }) {
  const rules = useAsk<{ rules: Rule[] }>("/api/v1/rules");
  const [source, setSource] = useState("recent");
  const [log, setLog] = useState<File>();
  const [pattern, setPattern] = useState("poisson");
  const [text, setText] = useState<string>();
  const [least, setLeast] = useState("");
  const [done, setDone] = useState<Done>();
  const [fault, setFault] = useState("");
  const [busy, setBusy] = useState(false);
  const draft = text ?? (rules.body ? yaml(rules.body.rules) : "");
  if (!writes) return <p class="empty">Simulating takes work of the service; it needs a token with the role write.</p>;
  const run = () => {
    setBusy(true);
    setFault("");
    const request = {
      inForce: true,
      ...(least && { suggest: { share: Number(least) } }),
      ...(draft.trim() && { candidates: [{ name: "candidate", rules: draft }] }),
      ...(source === "pattern" && { pattern: { name: pattern, seed: 1, rate: 50, clients: 200, length: pattern === "diurnal" ? "1d" : "10m", window: "1m" } }),
    };
    const candidate = draft;
    simulate(request, source === "log" ? log : undefined).then((report) => setDone({ report, candidate }), (e: unknown) => setFault(messageOf(e))).finally(() => setBusy(false));
  };
  return (
    <>
      <h1 class="lead">What would other rules have done?</h1>
      <div class="two">
        <section>
          <label class="field"><span>The candidate: all rules, changed as you like</span>
            <textarea rows={18} spellcheck={false} value={draft} onInput={(e) => setText(e.currentTarget.value)} />
          </label>
          <div class="row">
            <label class="field"><span>Traffic</span>
              <select value={source} onChange={(e) => setSource(e.currentTarget.value)}>
                <option value="recent">the last minutes of this service</option>
                <option value="log">an access log</option>
                <option value="pattern">a pattern</option>
              </select>
            </label>
            {source === "log" && <label class="field"><span>Log: nginx, Apache, Caddy, Envoy, ALB, CSV, JSON lines; plain, gzip or zstd; 64 MiB unpacked</span><input type="file" onChange={(e) => setLog(e.currentTarget.files?.[0])} /></label>}
            {source === "pattern" && <Choice name="pattern" label="Pattern" value={pattern} options={Object.keys(patterns)} set={setPattern} />}
            <label class="field"><span>Suggest limits that never deny</span>
              <select value={least} onChange={(e) => setLeast(e.currentTarget.value)}>
                <option value="">suggest none</option>
                <option value="0.9">90 % of the clients</option>
                <option value="0.95">95 % of the clients</option>
                <option value="0.99">99 % of the clients</option>
                <option value="0.999">99.9 % of the clients</option>
                <option value="1">all clients</option>
              </select>
            </label>
            <button class="main" disabled={busy || (source === "log" && !log)} onClick={run}>{busy ? "Simulating…" : "Simulate"}</button>
          </div>
          {fault && <p class="fault" role="alert">{fault}</p>}
          <p class="faint">Nothing is taken from anybody. A change that is saved in shadow decides real requests and denies none; its <a href="#/rules">rule</a> then compares both.</p>
        </section>
        <section>{done ? <><Result report={done.report} /><Saves done={done} rules={rules.body?.rules ?? []} again={rules.again} /></> : <p class="empty">The result compares the rules in force with the candidate.</p>}</section>
      </div>
    </>
  );
}

function Result({ report }: { report: Report }) {
  return (
    <>
      <p>{compact(report.events)} requests in {duration(report.last - report.first)}{report.leftOut ? `; ${compact(report.leftOut)} left out` : ""}{report.input ? `; ${report.input.format}, ${compact(report.input.lines)} lines, ${compact(report.input.malformed)} malformed` : ""}.</p>
      {report.candidates.map((c) => <CandidatePlot key={c.name} candidate={c} title={c.name} height={130} />)}
      <table>
        <thead><tr><th>rule</th><th>by</th><th class="n">denied</th><th class="n">share</th><th class="n">clients denied</th><th class="n">shut out</th></tr></thead>
        <tbody>
          {[...new Set(report.candidates.flatMap((c) => (c.rules ?? []).map((r) => r.rule ?? "")))].flatMap((id) =>
            report.candidates.map((c, i) => {
              const r = c.rules?.find((rule) => rule.rule === id);
              return (
                <tr key={id + c.name}>
                  <td>{i === 0 ? id : ""}</td>
                  <td class="faint">{c.name}</td>
                  <td class={r?.denied ? "n denied" : "n"}>{r ? compact(r.denied) : "–"}{r && r.shadow > 0 && <span class="shadow"> +{compact(r.shadow)}</span>}</td>
                  <td class="n">{r ? share(r.denied, r.requests) : ""}</td>
                  <td class="n">{r ? `${compact(r.clientsDenied ?? 0)} of ${compact(r.clients ?? 0)}` : ""}</td>
                  <td class="n">{r?.longestShut ? duration(r.longestShut) : ""}</td>
                </tr>
              );
            }),
          )}
        </tbody>
      </table>
      {report.notes.map((n) => <p key={n} class="faint">{n}</p>)}
    </>
  );
}

interface Done {
  report: Report;
  candidate: string; // as it was simulated
}

/** inShadow saves a rule so that it decides and denies nothing: beside the rule that it would change, or as itself if it is new. */
async function inShadow(rule: Rule, known: boolean) {
  const { max_wait: _wait, max_waiters: _waiters, ...rest } = rule;
  const id = known ? rule.id + ".candidate" : rule.id;
  await ask(`/api/v1/rules/${encodeURIComponent(id)}?comment=${encodeURIComponent("saved from a simulation")}`, { method: "PUT", body: { ...rest, id, on_exceed: "shadow" } });
}

/** suggested is a rule with the limits of a suggestion. */
function suggested(rule: Rule, s: Suggestion): Rule {
  return { ...rule, limits: rule.limits?.map((limit, i) => ({ ...limit, ["capacity" in limit ? "capacity" : "limit"]: s.values[i] ?? 0 })) };
}

/** Saves are what the simulation suggests and what the candidate changes, each to be saved as a rule in shadow. */
function Saves({ done, rules, again }: { done: Done; rules: Rule[]; again: () => void }) {
  const [candidate, setCandidate] = useState<Rule[]>([]);
  const [saved, setSaved] = useState<string[]>([]);
  useEffect(() => {
    setSaved([]);
    void import("../ruletext").then(({ listOf }) => setCandidate(listOf(done.candidate)));
  }, [done]);
  const known = new Map(rules.map((r) => [r.id, r]));
  const changed = candidate.filter((r) => JSON.stringify(r) !== JSON.stringify(known.get(r.id)));
  // A rule that the candidate leaves as it is has the same suggestion twice.
  const listed = (done.report.suggestions ?? []).filter((s) => s.candidate === "in force" || changed.some((r) => r.id === s.rule));
  const save = (key: string, rule: Rule) => inShadow(rule, known.has(rule.id)).then(() => {
    setSaved((list) => [...list, key]);
    again();
  });
  const button = (key: string, rule?: Rule) =>
    rule && saved.includes(key) ? <a href={at("rules", rule.id)}>saved; compare</a>
    : rule && !rule.id.endsWith(".candidate") && !rule.unlimited && !rule.banned && <Act run={() => save(key, rule)}>Save in shadow</Act>;
  return (
    <>
      {listed.length > 0 && (
        <Panel title="Suggested limits" scope="the least that never deny so many clients">
          <p class="faint">A limit is found on the first three quarters of the time, and tested on the last.</p>
          <div class="scroll">
            <table class="wrap">
              <thead><tr><th>rule</th><th>limit</th><th>evidence</th><th /></tr></thead>
              <tbody>
                {listed.map((s) => {
                  const of = s.candidate === "in force" ? known.get(s.rule) : candidate.find((r) => r.id === s.rule);
                  return (
                    <tr key={s.candidate + "/" + s.rule}>
                      <td>{s.rule}{s.candidate !== "in force" && <span class="faint"> {s.candidate}</span>}</td>
                      <td>{s.limits.join(" and ")}</td>
                      <td class="evidence"><Evidence s={s} /></td>
                      <td class="n">{button(s.candidate + "/" + s.rule, of && suggested(of, s))}</td>
                    </tr>
                  );
                })}
              </tbody>
            </table>
          </div>
        </Panel>
      )}
      {changed.length > 0 && (
        <Panel title="What the candidate changes">
          <table>
            <tbody>{changed.map((r) => <tr key={r.id}><td>{r.id}</td><td>{what(r)}</td><td class="n">{button("candidate " + r.id, r)}</td></tr>)}</tbody>
          </table>
        </Panel>
      )}
    </>
  );
}

function Evidence({ s }: { s: Suggestion }) {
  return (
    <>
      {compact(s.untouched)} of {compact(s.clients)} clients ({share(s.untouched, s.clients)}) are never denied
      {s.untouchedBelow.map((below, i) => below >= 0 && <>; {compact(below)} with one less{s.limits.length > 1 && ` in ${s.limits[i]}`}</>)}.{" "}
      {s.restClients > 0 ? <>Tested: {compact(s.restUntouched)} of {compact(s.restClients)} ({share(s.restUntouched, s.restClients)}).</> : "Not tested: nobody asked in the last quarter."}
      {s.tooClose + s.beyondRange > 0 && <> Not counted: {compact(s.tooClose)} that come closer than min_interval, {compact(s.beyondRange)} that no valid limit admits.</>}
      {s.maximum && s.goal < 1 && <> Too few clients for {100 * s.goal} %: the heaviest one decides.</>}
    </>
  );
}
