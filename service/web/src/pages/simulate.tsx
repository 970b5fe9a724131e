// What rules would do: to made-up traffic, to a log, or to what this service decided lately. And the playground:
// all five algorithms on one pattern.

import { useEffect, useRef, useState } from "preact/hooks";
import { ask } from "../api";
import type { Rule, Suggestion } from "../api";
import { compact, duration, integer, share } from "../format";
import { busiest, StepsPlot } from "../steps";
import type { CandidateReport, Report } from "../steps";
import { Act, at, CopyYAML, messageOf, Panel, RuleLink, useAsk, useKept } from "../ui";
import { yaml } from "../yaml";
import { what } from "./rules";

type Answer = Report & { leftOut?: number; suggestions?: Suggestion[] };

interface Pattern {
  name: string;
  seed: number;
  rate: number;
  clients: number;
  length: string;
  window: string;
  burst?: number;
}

async function simulate(request: unknown, signal: AbortSignal, log?: File): Promise<Answer> {
  const form = new FormData();
  form.set("request", JSON.stringify(request));
  if (log) form.set("log", log);
  return (await ask<Answer>("/api/v1/simulate", { method: "POST", form, signal })).body;
}

const patterns: Record<string, string> = {
  "boundary-burst": "a burst just before and just after a boundary of windows",
  steady: "evenly spaced",
  poisson: "by chance, at one rate",
  diurnal: "a day, with its peak",
  spike: "calm, and a sudden crowd",
  "retry-storm": "denied clients come again, more and more",
};

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
  const [s, set] = useKept("playground", { pattern: "boundary-burst", limit: "100", window: "1m", rate: "33", burst: "100", clients: "1", length: "2m", seed: "1" }, given);
  const [report, setReport] = useState<Answer>();
  const [fault, setFault] = useState("");
  const boundary = s.pattern === "boundary-burst";
  const request = JSON.stringify({
    budget: `${s.limit}/${s.window}`,
    pattern: { name: s.pattern, seed: Number(s.seed), rate: Number(s.rate), clients: Number(s.clients), length: s.length, window: s.window, ...(boundary && { burst: Number(s.burst) }) } satisfies Pattern,
  });
  useEffect(() => {
    const stop = new AbortController();
    const timer = setTimeout(() => {
      simulate(JSON.parse(request), stop.signal).then(
        (r) => (setReport(r), setFault("")),
        (e: unknown) => stop.signal.aborted || setFault(messageOf(e)),
      );
    }, 200);
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [request]);
  const names = Object.keys(patterns);
  return (
    <>
      <h1 class="lead">{report ? <Lesson report={report} boundary={boundary} /> : `Five algorithms, one pattern: ${patterns[s.pattern]}`}</h1>
      <div class="row">
        <Choice name="pattern" label="Pattern" value={s.pattern} options={names} set={(pattern) => set({ pattern })} />
        <Slide label="Limit" value={s.limit} least={1} most={500} step={1} set={(limit) => set({ limit })} />
        <Choice name="window" label="per" value={s.window} options={["10s", "1m", "10m", "1h"]} set={(window) => set({ window })} />
        {boundary ? <Slide label="Requests before the edge, and after it" value={s.burst} least={1} most={500} step={1} set={(burst) => set({ burst })} /> : <Slide label="Requests per second" value={s.rate} least={1} most={200} step={1} set={(rate) => set({ rate })} />}
        <Slide label="Clients" value={s.clients} least={1} most={200} step={1} set={(clients) => set({ clients })} />
        <Choice name="length" label="for" value={s.length} options={["1m", "2m", "10m", "1h", "1d"]} set={(length) => set({ length })} />
        <Slide label="Seed" value={s.seed} least={1} most={50} step={1} set={(seed) => set({ seed })} />
      </div>
      {fault && <p class="fault" role="alert">{fault}</p>}
      <div class="plots">
        {report?.candidates.map((c) => <CandidatePlot key={c.name} report={report} candidate={c} title={algorithmNames[c.name] ?? c.name} height={150} since sync="playground" />)}
        <Guide />
      </div>
    </>
  );
}

/** Lesson says in one sentence what each algorithm admits, the most first. */
function Lesson({ report, boundary }: { report: Report; boundary: boolean }) {
  const admitted = [...report.candidates].sort((a, b) => b.total.admitted - a.total.admitted).map((c, i) => `${(algorithmNames[c.name] ?? c.name).toLowerCase()} ${i ? "" : "admits "}${integer(c.total.admitted)}`);
  return <>Of {integer(report.events)} requests{boundary && " at a window's edge"}, {admitted.join(", ")}.</>;
}

function CandidatePlot({ report, candidate: c, title, ...rest }: { report: Report; candidate: CandidateReport; title: string; height: number; since?: boolean; sync: string }) {
  const limit = c.rules?.[0]?.limits?.[0];
  return (
    <section>
      <h2>{title} <span class="faint">{integer(c.total.admitted)} admitted, {share(c.total.denied, c.total.requests)} denied{limit && `; at most ${limit.atLeast ? "≥ " : ""}${compact(limit.clientPeak)} of one client in ${duration(limit.span)}`}{c.total.longestDelay > 0 && `; held up to ${duration(c.total.longestDelay)}`}</span></h2>
      <p class="faint tight">requests per {duration(c.step)}</p>
      <StepsPlot of={c} steps={c.steps} most={busiest(report.candidates)} {...rest} label={`${title}: offered and admitted requests per ${duration(c.step)}`} />
    </section>
  );
}

/** Guide leads to an algorithm by questions. */
function Guide() {
  return (
    <section class="panel tree">
      <header><h2>Which one?</h2></header>
      <ul>
        <li>Is the limit a quota of a calendar period, such as 1,000 a day?
          <ul>
            <li>Yes: <strong>fixed window</strong>. Around a boundary of windows twice the limit may pass.</li>
            <li>No. Does the service behind need an even pace?
              <ul>
                <li>Yes: <strong>leaky bucket</strong>. Requests may wait for their turn.</li>
                <li>No. May a client send short bursts?
                  <ul>
                    <li>Yes: <strong>token bucket</strong>. The default.</li>
                    <li>No: never more than N in any window.
                      <ul>
                        <li>N is small, such as 5 logins: <strong>sliding window log</strong>. Exact.</li>
                        <li>N is large: <strong>sliding window counter</strong>. Nearly exact, in little memory.</li>
                      </ul>
                    </li>
                  </ul>
                </li>
              </ul>
            </li>
          </ul>
        </li>
      </ul>
    </section>
  );
}

export function Simulate({ state, writes, edits }: { state?: string; writes: boolean; edits: boolean }) {
  const [{ source, pattern, rate, clients, least, run: atOnce, client, path, method, burst, hold }, keep] = useKept("simulate", { source: "recent", pattern: "poisson", rate: "50", clients: "200", least: "", run: "", client: "client", path: "/", method: "GET", burst: "1", hold: "" }, state);
  const rules = useAsk<{ rules: Rule[] }>("/api/v1/rules");
  const [log, setLog] = useState<File>();
  const [text, setText] = useState<string>();
  const [done, setDone] = useState<Done>();
  const [fault, setFault] = useState("");
  const [busy, setBusy] = useState(false);
  const stop = useRef(new AbortController()); // who leaves the page does not wait for it, and the service has one simulation at a time
  useEffect(() => () => stop.current.abort(), []);
  const draft = text ?? (rules.body?.rules.length ? yaml(rules.body.rules) : "");
  const run = () => {
    setBusy(true);
    setFault("");
    const request = {
      inForce: true,
      ...(least && { suggest: { share: Number(least) } }),
      ...(text?.trim() && { candidates: [{ name: "candidate", rules: text }] }),
      ...(source === "pattern" && { pattern: { name: pattern, seed: 1, rate: Number(rate), clients: Number(clients), length: pattern === "diurnal" ? "1d" : "10m", window: "1m", client, path, method, burst: pattern === "boundary-burst" && burst === "1" ? 0 : Number(burst), hold } }),
    };
    const candidate = text ?? "";
    simulate(request, stop.current.signal, source === "log" ? log : undefined).then((report) => setDone({ report, candidate }), (e: unknown) => setFault(messageOf(e))).finally(() => setBusy(false));
  };
  useEffect(() => {
    if (!writes || !atOnce || !rules.body || source === "log") return;
    keep({ run: "" });
    run();
  }, [atOnce, rules.body]);
  if (!writes) return <><h1 class="lead">Simulate</h1><p class="empty">A simulation uses the service's processor. It needs a token with the role write.</p></>;
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
              <select value={source} onChange={(e) => keep({ source: e.currentTarget.value })}>
                <option value="recent">the last minutes of this process</option>
                <option value="log">an access log</option>
                <option value="pattern">a pattern</option>
              </select>
            </label>
            {source === "log" && <label class="field"><span>Log: nginx, Apache, Caddy, Envoy, ALB, CSV, JSON lines; plain, gzip or zstd; 32 MiB unpacked</span><input type="file" onChange={(e) => setLog(e.currentTarget.files?.[0])} /></label>}
            {source === "pattern" && <Choice name="pattern" label="Pattern" value={pattern} options={Object.keys(patterns)} set={(pattern) => keep({ pattern })} />}
            {source === "pattern" && <Slide label="Requests per second" value={rate} least={1} most={500} step={1} set={(rate) => keep({ rate })} />}
            {source === "pattern" && <Slide label="Clients" value={clients} least={1} most={1000} step={1} set={(clients) => keep({ clients })} />}
            {source === "pattern" && <Slide label="Requests at once" value={burst} least={1} most={100} step={1} set={(burst) => keep({ burst })} />}
            {source === "pattern" && <Choice name="method" label="Method" value={method} options={["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]} set={(method) => keep({ method })} />}
            {source === "pattern" && <label class="field"><span>Path</span><input name="path" class="mono" value={path} onInput={(e) => keep({ path: e.currentTarget.value })} /></label>}
            {source === "pattern" && <label class="field"><span>Client: address, user and API key</span><input name="client" class="mono" value={client} onInput={(e) => keep({ client: e.currentTarget.value })} /></label>}
            {source === "pattern" && <label class="field"><span>Each request holds what it takes for, such as 2s; empty: it takes</span><input name="hold" class="mono" value={hold} onInput={(e) => keep({ hold: e.currentTarget.value })} /></label>}
            <label class="field"><span>Suggest limits that never deny</span>
              <select value={least} onChange={(e) => keep({ least: e.currentTarget.value })}>
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
          <p class="faint">A simulation takes nothing from anybody. A change that is saved in shadow decides real requests and denies none; the page of its rule then compares both.</p>
        </section>
        <section>{done ? <><Result report={done.report} /><Saves done={done} rules={rules.body?.rules ?? []} again={rules.again} edits={edits} /></> : busy ? <p class="empty">Simulating… It goes over all recorded requests, which may take some seconds.</p> : <p class="empty">The result compares the rules in force with the candidate: what each denies, to how many clients, and for how long.</p>}</section>
      </div>
    </>
  );
}

function Result({ report }: { report: Answer }) {
  if (report.events === 0) return <p class="empty">There is no request to simulate. Send some to the service, or choose a log or a pattern.</p>;
  return (
    <>
      <p>{integer(report.events)} requests in {duration(report.last - report.first)}{report.leftOut ? `; ${compact(report.leftOut)} left out` : ""}{report.input ? `; ${report.input.format}, ${compact(report.input.lines)} lines, ${compact(report.input.malformed)} malformed` : ""}.</p>
      {report.candidates.map((c) => <CandidatePlot key={c.name} report={report} candidate={c} title={c.name === "in force" ? "In force" : "Candidate"} height={130} sync="simulation" />)}
      <div class="scroll"><table>
        <thead><tr><th>rule</th><th>with</th><th class="n">denied</th><th class="n hide-narrow">share</th><th class="n">clients</th><th class="n" title="the longest time that a client was denied without a break">shut out</th></tr></thead>
        <tbody>
          {[...new Set(report.candidates.flatMap((c) => (c.rules ?? []).map((r) => r.rule ?? "")))].flatMap((id) =>
            report.candidates.map((c, i) => {
              const r = c.rules?.find((rule) => rule.rule === id);
              return (
                <tr key={id + c.name}>
                  <td>{i === 0 ? <RuleLink id={id} /> : ""}</td>
                  <td class="faint">{c.name}</td>
                  <td class={r?.denied ? "n denied" : "n"}>{r ? compact(r.denied) : "–"}{r && r.shadow > 0 && <span class="shadow"> +{compact(r.shadow)} in shadow</span>}</td>
                  <td class="n hide-narrow">{r ? share(r.denied, r.requests) : ""}</td>
                  <td class="n">{r?.clients ? `${compact(r.clientsDenied ?? 0)} of ${compact(r.clients)}` : ""}</td>
                  <td class="n">{r?.longestShut ? duration(r.longestShut) : ""}</td>
                </tr>
              );
            }),
          )}
        </tbody>
      </table></div>
      {report.notes?.map((n) => <p key={n} class="faint">{n}</p>)}
    </>
  );
}

interface Done {
  report: Answer;
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
function Saves({ done, rules, again, edits }: { done: Done; rules: Rule[]; again: () => void; edits: boolean }) {
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
    : rule && !edits ? <CopyYAML of={[rule]} />
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
      With that, {compact(s.untouched)} of {compact(s.clients)} clients ({share(s.untouched, s.clients)}) are never denied
      {s.untouchedBelow.map((below, i) => below >= 0 && <>; with one less{s.limits.length > 1 && ` in ${s.limits[i]}`} it is {compact(below)}</>)}.{" "}
      {s.restClients > 0 ? <>In the last quarter, {compact(s.restUntouched)} of {compact(s.restClients)} ({share(s.restUntouched, s.restClients)}) are not.</> : "Not tested: nobody asked in the last quarter."}
      {s.tooClose + s.beyondRange > 0 && <> Not counted: {compact(s.tooClose)} that come closer than min_interval, {compact(s.beyondRange)} that no valid limit admits.</>}
      {s.maximum && s.goal < 1 && <> Too few clients for {100 * s.goal} %: the heaviest one decides.</>}
      {s.curves?.map((points, i) => <Curve key={i} points={points} found={s.values[i] ?? 0} clients={s.clients} name={s.limits[i] ?? ""} />)}
    </>
  );
}

/** A Curve is the share of clients that are never denied over the value of a limit, with the one that was found. */
function Curve({ points, found, clients, name }: { points: { value: number; untouched: number }[]; found: number; clients: number; name: string }) {
  const [width, height, left] = [200, 48, 30];
  const x = (value: number) => left + ((width - left - 4) * value) / (2 * found);
  const y = (untouched: number) => height - 14 - ((height - 20) * untouched) / clients;
  const line = points.map((p, i) => (i ? `H${x(p.value)}V${y(p.untouched)}` : `M${x(p.value)} ${y(p.untouched)}`)).join("");
  const at = points.find((p) => p.value === found);
  return (
    <svg class="curve" width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={`Clients never denied over the value of ${name}`}>
      <path d={`M${left} ${y(clients)}H${width - 4}M${left} ${y(0)}H${width - 4}`} class="rule" />
      <path d={`${line}H${width - 4}`} class="line" />
      {at && <circle cx={x(found)} cy={y(at.untouched)} r="3" />}
      <text x={left - 4} y={y(clients) + 4} text-anchor="end">all</text>
      <text x={left - 4} y={y(0)} text-anchor="end">0</text>
      <text x={x(found)} y={height - 1} text-anchor="middle">{compact(found)}</text>
    </svg>
  );
}
