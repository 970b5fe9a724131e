// One client: what it has left by each rule, why it was denied, and what can be done.

import { useState } from "preact/hooks";
import { ask } from "../api";
import type { LimitState, Timeline } from "../api";
import { compact, duration, integer } from "../format";
import { Act, at, messageOf, Panel, RuleLink, Time, useAsk } from "../ui";
import { reasonText } from "./overview";

interface ClientState {
  client: string;
  rules: { rule: string; onExceed: string; standing: string; allowed: boolean; limits?: LimitState[] }[];
}

export function Client({ name, writes }: { name?: string; writes: boolean }) {
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
      {name ? <Found key={name} name={name} writes={writes} /> : <p class="empty">Look up a client to see what it has left by each rule, why it was last denied, and its requests.</p>}
    </>
  );
}

function Found({ name, writes }: { name: string; writes: boolean }) {
  const state = useAsk<ClientState>(`/api/v1/clients/${encodeURIComponent(name)}`);
  const timeline = useAsk<Timeline>(`/api/v1/timeline?client=${encodeURIComponent(name)}`);
  const again = () => {
    state.again();
    timeline.again();
  };
  const used = (state.body?.rules ?? []).filter((r) => !r.allowed || r.standing === "banned" || r.limits?.some((l) => l.remaining < l.limit));
  const last = timeline.body?.denials[0];
  return (
    <>
      <h1 class="lead"><span class="mono">{name}</span>{last ? <>: last denied at <Time micros={last.at} /> by <RuleLink id={last.rule} />, {reasonText(last.reason)}</> : ": no denial is known"}.</h1>
      <div class="panels">
        <Panel title="What it has left" scope="the store's state, all processes" more={<button class="plain" onClick={again}>ask again</button>}>
          {state.fault && <p class="fault" role="alert">{messageOf(state.fault)}</p>}
          {state.body && used.length === 0 && <p class="empty">No state; all rules would admit.</p>}
          {used.length > 0 && (
            <table>
              <thead><tr><th>rule</th><th class="hide-narrow">limit</th><th class="n">left</th><th>next</th><th /></tr></thead>
              <tbody>
                {used.flatMap((r) => (r.limits?.length ? r.limits : [undefined]).map((l, i) => (
                  <tr key={r.rule + i}>
                    <td>{i === 0 ? <RuleLink id={r.rule} /> : ""}</td>
                    {l ? (
                      <>
                        <td class="faint hide-narrow">{l.name || l.algorithm.toLowerCase().replaceAll("_", " ")}</td>
                        <td class={l.allowed ? "n" : "n denied"}>{compact(l.remaining)} of {compact(l.limit)}</td>
                        <td>{l.allowed ? "now" : "in " + duration(l.retryAfterMicros)}</td>
                      </>
                    ) : <td colSpan={3} class={r.standing === "banned" ? "denied" : "faint"}>{r.standing}</td>}
                    <td class="n">{i === 0 && writes && <Act confirm={`Reset what ${name} has used by ${r.rule}?`} run={() => ask(`/api/v1/rules/${encodeURIComponent(r.rule)}/reset`, { method: "POST", body: { key: name } }).then(again)}>Reset</Act>}</td>
                  </tr>
                )))}
              </tbody>
            </table>
          )}
        </Panel>
        {writes && <Override name={name} rules={(state.body?.rules ?? []).map((r) => r.rule)} done={again} />}
        <Panel title="Its requests" scope="this process">
          {timeline.fault && <p class="fault" role="alert">{messageOf(timeline.fault)}</p>}
          {timeline.body && !timeline.body.sampled && <p class="empty">One of {integer(timeline.body.sample.oneIn)} clients is recorded in full, and this is none of them. Its denials are below.</p>}
          {timeline.body?.sampled && timeline.body.decisions.length === 0 && <p class="empty">None since <Time micros={timeline.body.sample.from} />.</p>}
          {timeline.body && timeline.body.decisions.length > 0 && (
            <table>
              <thead><tr><th>time</th><th>rule</th><th>outcome</th><th class="n hide-narrow">cost</th><th class="hide-narrow">request</th></tr></thead>
              <tbody>
                {timeline.body.decisions.map((d, i) => (
                  <tr key={i}>
                    <td><Time micros={d.at} /></td>
                    <td><RuleLink id={d.rule} /></td>
                    <td class={d.outcome === "denied" ? "denied" : d.degraded ? "degraded" : ""}>{d.outcome}{d.reason ? ", " + reasonText(d.reason) : ""}{d.degraded ? ", degraded" : ""}</td>
                    <td class="n hide-narrow">{d.permits}</td>
                    <td class="mono hide-narrow">{d.method} {d.path}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
        </Panel>
        <Panel title="Its last denials" scope="this process">
          {timeline.body?.denials.length === 0 && <p class="empty">None.</p>}
          <table aria-label="Its last denials"><tbody>
            {timeline.body?.denials.slice(0, 50).map((d) => (
              <tr key={d.seq}><td><Time micros={d.at} /></td><td><RuleLink id={d.rule} /></td><td>{reasonText(d.reason)}</td><td class="mono hide-narrow">{d.requestId}</td></tr>
            ))}
          </tbody></table>
        </Panel>
      </div>
    </>
  );
}

function Override({ name, rules, done }: { name: string; rules: string[]; done: () => void }) {
  const [rule, setRule] = useState("");
  const [what, setWhat] = useState("limits:\n  - algorithm: token_bucket\n    capacity: 200\n    refill: 20/s\n");
  const chosen = rule || rules[0] || "";
  const path = `/api/v1/rules/${encodeURIComponent(chosen)}/overrides/${encodeURIComponent(name)}`;
  return (
    <Panel title="Let something else hold for it" scope="an override of one rule">
      <div class="row">
        <label class="field"><span>Rule</span>
          <select value={chosen} onChange={(e) => setRule(e.currentTarget.value)}>{rules.map((id) => <option key={id}>{id}</option>)}</select>
        </label>
        <button onClick={() => setWhat("unlimited: true\n")}>Unlimited</button>
        <button onClick={() => setWhat("banned: true\n")}>Banned</button>
      </div>
      <textarea rows={5} aria-label="The override, as YAML" value={what} onInput={(e) => setWhat(e.currentTarget.value)} />
      <div class="row">
        <Act main disabled={!chosen} run={() => ask(path, { method: "PUT", text: what }).then(done)}>Put in force</Act>
        <Act disabled={!chosen} run={() => ask(path, { method: "DELETE" }).then(done)}>Remove it</Act>
      </div>
    </Panel>
  );
}
