// One client: what it has left by each rule, why it was denied, and what can be done.

import { useMemo, useState } from "preact/hooks";
import { ask } from "../api";
import type { Decision, Denials, Limit, LimitState, Rule, Timeline } from "../api";
import { compact, duration, integer, timeOf } from "../format";
import { live } from "../live";
import { Plot } from "../plot";
import { Act, at, messageOf, Panel, RuleLink, scopeText, Time, useAsk, useEvery, When, Window } from "../ui";
import { yaml } from "../yaml";
import { DenialTable, Searched, Silent } from "./denials";
import { reasonText } from "./overview";
import { what } from "./rules";

interface Hold {
  id: string;
  limit: number;
  permits: number;
  expiresAt: number;
}

interface ClientState {
  client: string;
  rules: { rule: string; onExceed: string; outcome: string; allowed: boolean; limits?: LimitState[]; holds?: Hold[] }[];
}

export function Client({ name, writes, edits }: { name?: string; writes: boolean; edits: boolean }) {
  const [typed, setTyped] = useState(name ?? "");
  return (
    <>
      <form
        class="row"
        onSubmit={(e) => {
          e.preventDefault();
          if (typed.trim()) location.hash = at("client", typed.trim());
        }}
      >
        <label class="field"><span>Client: address, user, API key or attribute, as rules count it</span>
          <input class="mono" size={48} value={typed} onInput={(e) => setTyped(e.currentTarget.value)} />
        </label>
        <button class="main" type="submit">Look up</button>
      </form>
      {name ? <Found key={name} name={name} writes={writes} edits={edits} /> : <><h1 class="lead">Client</h1><p class="empty">Look up a client to see what it has left by each rule, why it was last denied, and its requests. The <a href="#/">overview</a> lists the clients that are denied most.</p></>}
    </>
  );
}

/** requestsOf are a client's requests by second, for the plot. */
function requestsOf(decisions: Decision[]) {
  const last = Math.floor((decisions[0]?.at ?? 0) / 1e6);
  const first = Math.floor((decisions.at(-1)?.at ?? 0) / 1e6);
  const step = Math.max(1, Math.ceil((last - first) / 300));
  const n = Math.max(2, Math.floor((last - first) / step) + 1);
  const count = (which: (d: Decision) => boolean) => {
    const sums = new Array<number>(n).fill(0);
    for (const d of decisions) if (which(d)) sums[Math.floor((Math.floor(d.at / 1e6) - first) / step)]! += 1 / step;
    return sums;
  };
  return { times: Array.from({ length: n }, (_, i) => first + i * step), admitted: count((d) => d.outcome === "admitted"), denied: count((d) => d.outcome === "denied") };
}

/** limitName is what a limit is to the client: a part of another rule's that it is sure of, or how much of it it may borrow. */
const limitName = (l?: LimitState) => {
  if (!l) return "";
  const shared = l.via === "guaranteed" ? "guaranteed" : l.via === "borrowed" ? "may borrow" : "";
  return shared || (l.name || l.algorithm.toLowerCase().replaceAll("_", " ")) + (l.keep ? `, ${compact(l.keep)} kept for others` : "");
};

/** most is what the client could have of a limit. */
const most = (l: LimitState) => Math.max(0, l.limit - (l.keep ?? 0));

function Found({ name, writes, edits }: { name: string; writes: boolean; edits: boolean }) {
  const state = useAsk<ClientState>(`/api/v1/clients/${encodeURIComponent(name)}`);
  const timeline = useAsk<Timeline>(`/api/v1/timeline?limit=500&client=${encodeURIComponent(name)}`);
  const again = () => {
    state.again();
    timeline.again();
  };
  useEvery(2, again);
  const denied = useAsk<Denials>(`/api/v1/denials?limit=100&client=${encodeURIComponent(name)}`);
  useEvery(10, denied.again); // all processes are asked, which takes seconds
  const rules = state.body?.rules ?? [];
  const used = rules.filter((r) => !r.allowed || r.outcome === "banned" || r.limits?.some((l) => l.remaining < most(l) || l.via));
  // A rule within another one has no overrides.
  const own = rules.filter((r) => r.outcome !== "included" && !r.limits?.some((l) => l.via)).map((r) => r.rule);
  const decisions = timeline.body?.decisions ?? [];
  const denials = denied.body?.denials ?? [];
  const plot = useMemo(() => requestsOf(decisions), [decisions[0]?.at, decisions.length]);
  const last = denials.find((d) => !d.shadow);
  return (
    <>
      <h1 class="lead"><span class="mono">{name}</span>{last ? <>: last denied at <Time micros={last.at} /> by <RuleLink id={last.rule} />, {reasonText(last.reason)}</> : denied.body ? ": no denial is known" : ""}.</h1>
      <div class="panels">
        <div>
          <Panel title="What it has left" scope="the store's state, all processes">
            {state.fault && <p class="fault" role="alert">{messageOf(state.fault)}</p>}
            {state.body && used.length === 0 && <p class="empty">No state; all rules would admit.</p>}
            {used.length > 0 && (
              <table>
                <thead><tr><th>rule</th><th class="hide-narrow">limit</th><th class="n">left</th><th>next</th><th /></tr></thead>
                <tbody>
                  {used.flatMap((r) => (r.limits?.length ? r.limits : [undefined]).map((l, i) => (
                    <tr key={r.rule + i}>
                      <td>{i === 0 && <><RuleLink id={r.rule} />{r.onExceed === "shadow" && <span class="shadow"> shadow</span>}</>}</td>
                      {l ? (
                        <>
                          <td class="faint hide-narrow">{limitName(l)}</td>
                          <td class={l.allowed ? "n" : "n denied"}>{compact(l.remaining)} of {compact(most(l))}</td>
                          <td>{l.allowed ? "now" : "in " + duration(l.retryAfterMicros)}</td>
                        </>
                      ) : <td colSpan={3} class={r.outcome === "banned" ? "denied" : "faint"}>{r.outcome}</td>}
                      <td class="n">{i === 0 && writes && l && <Act done="reset" confirm={`Reset what ${name} has used by ${r.rule}?`} run={() => ask(`/api/v1/rules/${encodeURIComponent(r.rule)}/reset`, { method: "POST", body: { key: name } }).then(again)}>Reset</Act>}</td>
                    </tr>
                  )))}
                </tbody>
              </table>
            )}
          </Panel>
          {rules.some((r) => r.holds?.length) && (
            <Panel title="What is held" scope="the store's state, all processes">
              <table>
                <thead><tr><th>hold</th><th>rule</th><th class="hide-narrow">limit</th><th class="n">permits</th><th>expires</th><th /></tr></thead>
                <tbody>
                  {rules.flatMap((r) => (r.holds ?? []).map((h) => (
                    <tr key={r.rule + h.limit + h.id}>
                      <td class="mono">{h.id}</td>
                      <td><RuleLink id={r.rule} /></td>
                      <td class="faint hide-narrow">{limitName(r.limits?.[h.limit])}</td>
                      <td class="n">{compact(h.permits)}</td>
                      <td><Time micros={h.expiresAt} /></td>
                      <td class="n">{writes && <Act done="ended" confirm={`End ${h.id} of ${name}? Its permits are free at once.`} run={() => ask(`/api/v1/holds/${encodeURIComponent(h.id)}?client=${encodeURIComponent(name)}`, { method: "DELETE" }).then(again)}>End</Act>}</td>
                    </tr>
                  )))}
                </tbody>
              </table>
            </Panel>
          )}
          <Panel title="Its requests" scope="this process alone">
            {timeline.fault && <p class="fault" role="alert">{messageOf(timeline.fault)}</p>}
            {timeline.body && !timeline.body.sampled && <p class="empty">The requests of one in {integer(timeline.body.sample.oneIn)} clients are recorded. This client is not among them.</p>}
            {timeline.body?.sampled && decisions.length === 0 && <p class="empty">None{timeline.body.sample.from > 0 && <> since <Time micros={timeline.body.sample.from} /></>}.</p>}
            {decisions.length > 1 && <Plot {...plot} height={120} label={`Requests per second of ${name}: admitted, and denied as the gap above`} />}
            {decisions.length > 0 && (
              <Window
                low
                label="Its requests"
                rows={decisions}
                empty=""
                head={<tr><th class="t">time</th><th>rule</th><th style={{ width: "34%" }}>outcome</th><th class="hide-narrow" style={{ width: "26%" }}>request</th></tr>}
                row={(d, i) => (
                  <tr key={i}>
                    <td><Time micros={d.at} /></td>
                    <td><RuleLink id={d.rule} /></td>
                    <td class={d.outcome === "denied" ? "denied" : d.degraded ? "degraded" : ""}>{d.outcome}{d.reason ? ", " + reasonText(d.reason) : ""}{d.via ? ", " + d.via : ""}{d.class ? ", class " + d.class : ""}{d.degraded ? ", degraded" : ""}</td>
                    <td class="mono hide-narrow" title={`${d.method} ${d.path}`}>{d.method} {d.path}{d.permits > 1 && `, cost ${d.permits}`}</td>
                  </tr>
                )}
              />
            )}
          </Panel>
        </div>
        <div>
          {edits && own.length > 0 && <Override name={name} rules={own} first={last?.rule ?? used[0]?.rule} done={again} />}
          <Panel title="Its last denials" scope={denied.body ? scopeText(denied.body.scope, denied.body.processes) : ""}>
            {denied.fault && <p class="fault" role="alert">{messageOf(denied.fault)}</p>}
            {!denied.body && !denied.fault && <p class="empty">Asking all processes…</p>}
            {denied.body && <Silent of={denied.body} />}
            {denied.body && <DenialTable low label="Its last denials" rows={denials} empty={<Searched of={denied.body} />} />}
          </Panel>
        </div>
      </div>
    </>
  );
}

/** wider are limits with twice the room, or more of it. */
const wider = (limits: Limit[]): Limit[] =>
  limits.map((l) => Object.fromEntries(Object.entries(l).map(([name, value]) => {
    const pace = (name === "refill" || name === "leak") && typeof value === "string" ? /^(\d+)(\/.*)$/.exec(value) : null;
    if ((name === "capacity" || name === "limit") && typeof value === "number") return [name, 2 * value];
    return [name, pace ? 2 * Number(pace[1]) + (pace[2] ?? "") : value];
  })) as Limit);

/** ending is the text of an override that ends at a time; undefined is never. */
const ending = (text: string, micros?: number) => text.replace(/^(for|until):.*\n?/gm, "").trimEnd() + "\n" + (micros === undefined ? "" : `until: ${new Date(micros / 1000).toISOString().replace(/\.\d+Z$/, "Z")}\n`);

/** endOf is when an override ends by its text, as people write it. */
const endOf = (text: string) => (/^until:\s*"?([^"\s]+)/m.exec(text)?.[1] ?? "").replace(/^(\S+)T(\d\d:\d\d)(:00)?(:\d\d)?Z$/, "$1 $2$4");

/** standing says whether an override holds, and until when. */
const standing = (until?: string) => {
  if (!until) return "In force for this client: the override below.";
  return Date.parse(until) > Date.now() ? `In force for this client until ${endOf("until: " + until)}: the override below.` : `The override below ended at ${endOf("until: " + until)}; the rule's own limits are in force.`;
};

function Override({ name, rules, first, done }: { name: string; rules: string[]; first?: string; done: () => void }) {
  const [rule, setRule] = useState("");
  const [typed, write] = useState<string>();
  const [end, setEnd] = useState<string>(); // as it is typed
  const setTyped = (to?: string) => {
    write(to);
    setEnd(undefined);
  };
  const now = () => (live.now || Date.now() / 1000) * 1e6; // the service's clock decides
  const chosen = rule || (first && rules.includes(first) ? first : rules[0]) || "";
  const known = useAsk<Rule>(`/api/v1/rules/${encodeURIComponent(chosen)}`);
  const present = known.body?.overrides?.find((o) => o.key === name);
  const { key: _key, ...own } = present ?? { key: "" };
  const limits = known.body?.limits;
  const text = typed ?? (present ? yaml(own) : limits ? yaml({ limits: wider(limits) }) : "unlimited: true\n");
  const path = `/api/v1/rules/${encodeURIComponent(chosen)}/overrides/${encodeURIComponent(name)}`;
  const put = () => {
    setTyped(undefined);
    known.again();
    done();
  };
  return (
    <Panel title="Override for this client" scope="of one rule">
      <div class="row">
        <label class="field"><span>Rule</span>
          <select value={chosen} onChange={(e) => { setRule(e.currentTarget.value); setTyped(undefined); }}>{rules.map((id) => <option key={id}>{id}</option>)}</select>
        </label>
        {limits && <button onClick={() => setTyped(yaml({ limits: wider(limits) }))}>Twice the limit</button>}
        <button onClick={() => setTyped("unlimited: true\n")}>Unlimited</button>
        <button onClick={() => setTyped("banned: true\n")}>Banned</button>
      </div>
      <div class="row">
        <When label="Ends: 2h, 18:00 or 2026-11-28 09:00; empty: never" size={20} sign={1} value={end ?? endOf(text)} set={(to) => { write(ending(text, timeOf(to, now(), 1))); setEnd(to); }} />
        <button onClick={() => setTyped(ending(text, timeOf("2h", now(), 1)))}>For 2 hours</button>
        <button onClick={() => setTyped(ending(text, timeOf("1d", now(), 1)))}>For a day</button>
        {endOf(text) && <button onClick={() => setTyped(ending(text))}>Without an end</button>}
      </div>
      <p class="faint tight">{present ? standing(present.until) : known.body ? `In force, as for every client: ${what(known.body)}.` : ""}</p>
      <textarea rows={6} aria-label="The override, as YAML" value={text} onInput={(e) => setTyped(e.currentTarget.value)} />
      <div class="row">
        <Act main done="in force" disabled={!chosen || (!!end?.trim() && timeOf(end, now(), 1) === undefined)} run={() => ask(path, { method: "PUT", text }).then(put)}>Put in force</Act>
        {present && <Act done="removed" run={() => ask(path, { method: "DELETE" }).then(put)}>Remove the override</Act>}
      </div>
    </Panel>
  );
}
