// All rules: dense rows, with what each one does now.

import { useMemo, useState } from "preact/hooks";
import { ask } from "../api";
import type { Rule, RuleList, RuleStatistics, ScopePart, Validation } from "../api";
import { integer, limitText, share } from "../format";
import { useLive } from "../live";
import type { RuleActivity } from "../live";
import { Spark } from "../plot";
import { Act, address, at, CopyYAML, download, lastSeconds, messageOf, Time, useAsk, useKept, Window } from "../ui";
import { yaml } from "../yaml";

const scopes: Record<string, string> = { global: "all together", per_ip: "address", per_user: "user", per_api_key: "API key" };

/** what says what a rule does: "100 per minute per address". */
export function what(rule: Rule): string {
  const others = rule.overrides?.length ?? 0;
  const except = others ? `, ${others} ${others === 1 ? "override" : "overrides"}` : "";
  if (rule.banned) return "banned" + except;
  if (rule.unlimited) return "unlimited" + except;
  const limits = (rule.limits ?? []).map(limitText).join(" and ");
  const list = ([] as ScopePart[]).concat(rule.scope ?? "global");
  const whom = list.map((s) => (typeof s === "object" ? `network (${Object.entries(s.per_ip).map(([of, bits]) => `${of} /${bits}`).join(", ")})` : scopes[s] ?? s.replace(/^custom:/, ""))).join(" and ");
  return (whom === "all together" ? `${limits}, ${whom}` : `${limits} per ${whom}`) + except;
}

export function matchText(rule: Rule): string {
  const m = (rule.match ?? {}) as { methods?: string[]; path?: string; paths?: string[]; host?: string; hosts?: string[]; except?: { paths?: string[] } };
  const paths = m.paths ?? (m.path ? [m.path] : []);
  const hosts = m.hosts ?? (m.host ? [m.host] : []);
  return [m.methods?.join(" "), hosts.join(" "), paths.join(" ") || (hosts.length ? "" : "all paths")].filter(Boolean).join(" ");
}

export const stateOf = (rule: Rule) => (rule.enabled === false ? "off" : rule.on_exceed === "shadow" ? "shadow" : (rule.on_exceed ?? "reject"));

/** states are what rules can be looked for by; on is all but off. */
const states = ["on", "reject", "wait", "shadow", "off"];

const isIn = (rule: Rule, state: string) => (state === "on" ? rule.enabled !== false : stateOf(rule) === state);

/** Cards are how many rules there are of each kind, which lead to them, and when rules changed. */
function Cards({ of }: { of: RuleStatistics }) {
  const card = (count: number, text: string, state?: string) => (
    <li><strong>{integer(count)}</strong> {state === undefined || count === 0 ? text : <a href={address("rules", { state })} title="shows these rules">{text}</a>}</li>
  );
  const change = of.lastChange;
  return (
    <ul class="cards" aria-label="Statistics">
      {card(of.total, "in all", "")}
      {card(of.enabled, "enabled", "on")}
      {card(of.disabled, "disabled", "off")}
      {card(of.shadow, "in shadow", "shadow")}
      {card(of.sets, of.sets === 1 ? "set" : "sets")}
      {change && <li><strong><Time micros={Date.parse(change.at) * 1000} /></strong> {of.revision ? <a href={at("revisions", String(of.revision))}>last change</a> : "last loaded"}{change.by && ` by ${change.by}`}</li>}
    </ul>
  );
}

const labelsOf = (rule: Rule) => Object.entries(rule.labels ?? {}).map(([k, v]) => `${k}:${v}`);

const matches = (rule: Rule, words: string[]) => {
  const text = [rule.id, rule.name, rule.set, matchText(rule), what(rule), ...labelsOf(rule)].join(" ").toLowerCase();
  return words.every((w) => text.includes(w));
};

export function Rules({ state, writes, edits }: { state?: string; writes: boolean; edits: boolean }) {
  const live = useLive();
  const { body, fault, again: read, etag } = useAsk<RuleList>("/api/v1/rules");
  const counts = useAsk<RuleStatistics>("/api/v1/rule-statistics");
  const again = () => {
    read();
    counts.again();
  };
  const [{ q: search, set, state: only }, keep] = useKept("rules", { q: "", set: "", state: "" }, state);
  const sets = useMemo(() => [...new Set((body?.rules ?? []).map((r) => r.set).filter((s): s is string => !!s))].sort(), [body]);
  const rows = useMemo(() => {
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    return (body?.rules ?? []).filter((r) => (!set || r.set === set) && (!only || isIn(r, only)) && matches(r, words));
  }, [body, search, set, only]);
  const change = (rule: Rule, patch: Partial<Rule>) =>
    ask(`/api/v1/rules/${encodeURIComponent(rule.id)}`, { method: "PATCH", body: patch, type: "application/merge-patch+json" }).then(again);
  return (
    <>
      <h1 class="lead">{body ? !body.rules.length ? "No rules" : `${integer(body.rules.length)} ${body.rules.length === 1 ? "rule" : "rules"}, revision ${body.revision}` : "Rules"}</h1>
      {body && body.rules.length > 0 && counts.body && <Cards of={counts.body} />}
      <div class="row">
        {body?.rules.length !== 0 && <label class="field"><span>Search ID, path, limit, label</span><input type="search" value={search} size={26} onInput={(e) => keep({ q: e.currentTarget.value })} /></label>}
        {sets.length > 0 && (
          <label class="field"><span>Set</span>
            <select value={set} onChange={(e) => keep({ set: e.currentTarget.value })}><option value="">all</option>{sets.map((s) => <option key={s}>{s}</option>)}</select>
          </label>
        )}
        {body?.rules.length !== 0 && <label class="field"><span>State</span>
          <select value={only} onChange={(e) => keep({ state: e.currentTarget.value })}><option value="">all</option>{states.map((s) => <option key={s}>{s}</option>)}</select>
        </label>}
        <span style={{ flex: 1 }} />
        <span class="links beside">
          <a href="#/explain">Explain a request</a>
          <a href="#/revisions">Revisions</a>
          <a href="#/domains" title="of Envoy's rate limit service">Domains</a>
        </span>
        {edits && <a class="main" href="#/rules/new">New rule</a>}
      </div>
      {body && (edits ? <Transfer list={body} tag={etag} done={again} /> : writes && body.rules.length > 0 && <div class="row"><CopyYAML of={{ rules: body.rules }} /></div>)}
      {fault && <p class="fault" role="alert">{messageOf(fault)}</p>}
      {body && (
        <Window
          rows={rows}
          empty={body.rules.length ? "No rule matches the search." : <NoRules writes={writes} edits={edits} />}
          head={<tr><th class="id">rule</th><th style={{ width: "84px" }} class="hide-narrow">state</th><th class="hide-narrow">match</th><th>limit</th><th style={{ width: "108px" }} class="hide-narrow">5 min</th><th class="n" style={{ width: "72px" }} title="in the last minute, this process">denied</th>{edits && <th style={{ width: "84px" }} class="hide-narrow" />}</tr>}
          row={(rule) => <Row key={rule.id} rule={rule} activity={live.rules.get(rule.id)} now={live.now} change={edits ? change : undefined} />}
        />
      )}
    </>
  );
}

/** An Import is a file that was chosen, with what it would change. */
interface Import {
  name: string;
  text: string;
  check: Validation;
}

const named = (verb: string, ids: string[] = []) => (ids.length ? `${verb} ${integer(ids.length)} (${ids.slice(0, 5).join(", ")}${ids.length > 5 ? ", …" : ""})` : "");

/** Transfer saves all rules as a file, and puts those of a file in their place, once it has said what that changes. */
function Transfer({ list, tag, done }: { list: RuleList; tag?: string; done: () => void }) {
  const [chosen, choose] = useState<Import>();
  const [fault, setFault] = useState("");
  const save = () => download(`rules-${list.revision}.yaml`, "application/yaml", yaml({ rules: list.rules }));
  const read = async (file: File | undefined) => {
    choose(undefined);
    setFault("");
    if (!file) return;
    try {
      const text = await file.text();
      choose({ name: file.name, text, check: (await ask<Validation>("/api/v1/rules/validate", { method: "POST", text })).body });
    } catch (e) {
      setFault(messageOf(e));
    }
  };
  const changes = chosen && [named("adds", chosen.check.added), named("changes", chosen.check.changed), named("removes", chosen.check.removed)].filter(Boolean).join(", ");
  return (
    <details>
      <summary>Export and import</summary>
      <div class="row">
        {list.rules.length > 0 && <button onClick={save}>Export all rules</button>}
        <label class="field"><span>Import all rules from YAML or JSON</span>
          <input type="file" accept=".yaml,.yml,.json" onChange={(e) => void read(e.currentTarget.files?.[0])} />
        </label>
        {fault && <span class="fault" role="alert">{fault}</span>}
        {chosen?.check.faults?.map((f) => <p key={`${f.line}:${f.column}:${f.detail}`} class="fault" role="alert">{chosen.name}{f.line ? `, line ${f.line}` : ""}: {f.detail}</p>)}
        {chosen?.check.warnings?.map((w) => <p key={w} class="faint">{w}</p>)}
        {chosen?.check.valid && (
          <>
            <span>{changes ? `${chosen.name} ${changes}.` : `${chosen.name} changes nothing.`}</span>
            {changes && <Act main run={() => ask(`/api/v1/rules?comment=${encodeURIComponent(`imported from ${chosen.name}`)}`, { method: "PUT", text: chosen.text, ifMatch: tag }).then(() => { choose(undefined); done(); })}>Put them in force</Act>}
          </>
        )}
      </div>
    </details>
  );
}

/** A Row is drawn anew when a second has ended, and not when the list scrolls. */
function Row({ rule, activity, now, change }: { rule: Rule; activity?: RuleActivity; now: number; change?: (rule: Rule, patch: Partial<Rule>) => Promise<unknown> }) {
  return useMemo(() => {
    const denied = activity?.denied.sum(60, now) ?? 0;
    const shadow = activity?.shadow.sum(60, now) ?? 0;
    const all = denied + shadow + (activity?.admitted.sum(60, now) ?? 0);
    const state = stateOf(rule);
    return (
      <tr>
        <td title={rule.name}><a href={at("rules", rule.id)}>{rule.id}</a>{rule.set && <span class="faint hide-narrow"> {rule.set}</span>}
          {labelsOf(rule).map((label) => <a key={label} class="label hide-narrow" href={address("rules", { q: label })} title="shows the rules with this label">{label}</a>)}
        </td>
        <td class={"hide-narrow" + (state === "shadow" ? " shadow" : state === "off" ? " faint" : "")}>{state}</td>
        <td class="mono hide-narrow" title={matchText(rule)}>{matchText(rule)}</td>
        <td title={what(rule)}>{(state === "shadow" || state === "off") && <span class={state === "off" ? "faint only-narrow" : "shadow only-narrow"}>{state}: </span>}{what(rule)}</td>
        <td class="hide-narrow">{activity && <Spark admitted={lastSeconds(activity.admitted, now, 300, 10)} denied={lastSeconds(activity.denied, now, 300, 10)} shadow={lastSeconds(activity.shadow, now, 300, 10)} />}</td>
        <td class={denied ? "n denied" : shadow ? "n shadow" : "n"} title="in the last minute, this process">{shadow ? share(shadow, all) : share(denied, all)}</td>
        {change && <td class="n hide-narrow"><Act run={() => change(rule, { enabled: rule.enabled === false })}>{rule.enabled === false ? "Enable" : "Disable"}</Act></td>}
      </tr>
    );
  }, [rule, activity, now]);
}

/** templates are what a first rule may be made of. */
export const templates: Record<string, string> = {
  "Every client address": "id: per-address\nscope: per_ip\nlimits:\n  - algorithm: token_bucket\n    capacity: 100\n    refill: 10/s\n",
  "Login attempts": "id: login\nmatch:\n  methods: [POST]\n  path: /login\nscope: per_ip\nlimits:\n  - algorithm: sliding_window_log\n    limit: 5\n    window: 1m\n",
  "API by key and plan": "id: api-free\nmatch:\n  path: /api/**\n  attributes:\n    plan: free\nscope: per_api_key\nmissing: deny\nlimits:\n  - algorithm: fixed_window\n    limit: 1000\n    calendar: day\n",
};

function NoRules({ writes, edits }: { writes: boolean; edits: boolean }) {
  return (
    <>
      <p>There are no rules yet. {edits ? "Start from a template:" : !writes && "To make one, sign in with a token that has the role write."}</p>
      {edits && <div class="templates">{Object.entries(templates).map(([name, text]) => <section key={name}><a href={at("rules", "new", name)}>{name}</a><pre>{text}</pre></section>)}</div>}
    </>
  );
}
