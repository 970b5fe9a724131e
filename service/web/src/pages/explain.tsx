// What the rules make of a request, without taking anything.

import { useEffect, useState } from "preact/hooks";
import { ask } from "../api";
import type { Explanation } from "../api";
import { compact, duration } from "../format";
import { ClientLink, messageOf, RuleLink, useKept } from "../ui";

export function Explain({ state }: { state?: string }) {
  const [q, keep] = useKept("explain", { method: "GET", path: "/", host: "", ip: "192.0.2.1", user: "", key: "", headers: "" }, state);
  const [answer, setAnswer] = useState<Explanation>();
  const [fault, setFault] = useState("");
  const field = (name: keyof typeof q, label: string, size = 20) => (
    <label class="field"><span>{label}</span><input class="mono" size={size} value={q[name]} onInput={(e) => keep({ [name]: e.currentTarget.value })} /></label>
  );
  useEffect(() => void (state && run()), []); // an address that was shared is answered at once
  const run = async (e?: Event) => {
    e?.preventDefault();
    setFault("");
    const attributes: Record<string, string> = {};
    if (q.user) attributes.userId = q.user;
    if (q.key) attributes.apiKey = q.key;
    const headers = Object.fromEntries(q.headers.split("\n").map((l) => l.split(/:\s*/, 2)).filter((p) => p[0] && p[1]) as [string, string][]);
    const body = { method: q.method, path: q.path, ...(q.host && { host: q.host }), ...(q.ip && { ip: q.ip }), attributes, headers };
    try {
      setAnswer((await ask<Explanation>("/api/v1/rules/explain", { method: "POST", body })).body);
    } catch (error) {
      setAnswer(undefined);
      setFault(messageOf(error));
    }
  };
  return (
    <>
      <h1 class="lead">Explain a request</h1>
      <form class="row" onSubmit={(e) => void run(e)}>
        {field("method", "Method", 8)}{field("path", "Path", 28)}{field("host", "Host", 16)}{field("ip", "Address", 18)}{field("user", "User", 14)}{field("key", "API key", 14)}
        <label class="field"><span>Header fields, one a line</span><textarea rows={1} cols={26} value={q.headers} onInput={(e) => keep({ headers: e.currentTarget.value })} /></label>
        <button class="main" type="submit">Explain</button>
      </form>
      {fault && <p class="fault" role="alert">{fault}</p>}
      {!answer && !fault && <p class="empty">Shows which rules match a request, what each would decide, and what its client has left. It takes nothing.</p>}
      {answer && (
        <>
          <p><span class={answer.allowed ? "" : "denied"}>{answer.allowed ? "Admitted" : "Denied"}</span>: {answer.why}</p>
          <div class="scroll"><table>
            <thead><tr><th>rule</th><th>outcome</th><th>client</th><th class="hide-narrow">limit</th><th class="n">left</th><th>next</th></tr></thead>
            <tbody>
              {answer.rules.flatMap((r) => (r.limits?.length ? r.limits : [undefined]).map((l, i) => (
                <tr key={r.rule + i}>
                  <td>{i === 0 ? <RuleLink id={r.rule} /> : ""}</td>
                  <td class={r.onExceed === "shadow" ? "shadow" : ""}>{i === 0 ? (r.onExceed === "shadow" ? "shadow, " : "") + r.outcome + (r.by ? " by " + r.by : "") + (r.class ? ", " + r.class : "") : ""}</td>
                  <td>{i === 0 && r.key ? <ClientLink name={r.key} /> : ""}</td>
                  <td class="hide-narrow">{l ? (l.via ? l.via + ": " : "") + (l.rule ? l.rule + ", " : "") + (l.name || l.algorithm.toLowerCase().replaceAll("_", " ")) + (l.keep ? `, ${compact(l.keep)} kept for others` : "") : ""}</td>
                  <td class={l && !l.allowed ? "n denied" : "n"}>{l ? `${compact(l.remaining)} of ${compact(l.limit)}` : ""}</td>
                  <td>{l ? (l.allowed ? "now" : "in " + duration(l.retryAfterMicros)) : ""}</td>
                </tr>
              )))}
            </tbody>
          </table></div>
          {answer.rules.length === 0 && <p class="empty">No rule matches it.</p>}
        </>
      )}
    </>
  );
}
