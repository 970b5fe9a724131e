// What the rules make of a request, without taking anything.

import { useEffect, useState } from "preact/hooks";
import { ask, scopeName } from "../api";
import type { Explanation, Rule, RuleList, ScopePart } from "../api";
import { compact, duration } from "../format";
import { ClientLink, messageOf, RuleLink, useKept } from "../ui";

const none = { method: "GET", path: "/", host: "", ip: "192.0.2.1", user: "", key: "", headers: "", attributes: "", rule: "", client: "" };

/** partsOf takes a client apart as rules write it: its parts have | between, and \\ before | and \\. */
const partsOf = (client: string) => (client.match(/(\\[|\\]|\\(?=sha256:)|[^|\\])+/g) ?? []).map((part) => part.replace(/\\([|\\])/g, "$1"));

/** requestOf is what is known of a request by the client that a rule made of it, and by what the rule holds for. */
function requestOf(rule: Rule, client: string) {
  const found = { host: "", ip: none.ip, user: "", key: "", headers: "", attributes: "" };
  const match = (rule.match ?? {}) as { host?: string; hosts?: string[]; headers?: Record<string, string>; attributes?: Record<string, string | string[]> };
  const fixed = (value: string | string[]) => [value].flat().find((v) => !v.startsWith("*"));
  const pairs = (of: Record<string, string | string[]> = {}) => Object.entries(of).flatMap(([name, value]) => (fixed(value) === undefined ? [] : [[name, fixed(value) ?? ""]]));
  found.host = fixed(match.hosts ?? match.host ?? []) ?? "";
  found.headers = pairs(match.headers).map((p) => p.join(": ")).join("\n");
  const attributes = new Map(pairs(match.attributes) as [string, string][]);
  const [, partition, rest = client] = (rule.partition_by ? /^\{([^}]*)\}(.*)$/s.exec(client) : null) ?? [];
  if (partition !== undefined) attributes.set(String(rule.partition_by), partition);
  const address = (text: string) => (found.ip = text === "unknown" ? none.ip : text.replace(/\/\d+$/, ""));
  if (rest.startsWith("\\ip:")) address(rest.slice(4));
  else {
    const parts = partsOf(rest);
    ([] as ScopePart[]).concat(rule.scope ?? "global").map(scopeName).forEach((scope, i) => {
      const part = parts[i] ?? "";
      if (scope === "per_ip") address(part);
      else if (scope === "per_user") found.user = part;
      else if (scope === "per_api_key") found.key = part.startsWith("\\sha256:") ? "" : part;
      else if (scope.startsWith("custom:")) attributes.set(scope.slice("custom:".length), part);
    });
  }
  found.attributes = [...attributes].map((p) => p.join(": ")).join("\n");
  return found;
}

/** pairsOf reads lines of names and values. */
const pairsOf = (text: string) => Object.fromEntries(text.split("\n").map((l) => /^\s*([^:]+?)\s*:\s*(.+?)\s*$/.exec(l)?.slice(1) ?? []).filter((p) => p.length === 2) as [string, string][]);

export function Explain({ state }: { state?: string }) {
  const [q, keep] = useKept("explain", none, state);
  const [answer, setAnswer] = useState<Explanation>();
  const [fault, setFault] = useState("");
  const field = (name: keyof typeof q, label: string, size = 20) => (
    <label class="field"><span>{label}</span><input class="mono" size={size} value={q[name]} onInput={(e) => keep({ [name]: e.currentTarget.value })} /></label>
  );
  const lines = (name: "headers" | "attributes", label: string) => (
    <label class="field"><span>{label}</span><textarea rows={Math.max(1, q[name].split("\n").length)} cols={26} value={q[name]} onInput={(e) => keep({ [name]: e.currentTarget.value })} /></label>
  );
  const run = async (request: typeof none) => {
    setFault("");
    const attributes = { ...pairsOf(request.attributes), ...(request.user && { userId: request.user }), ...(request.key && { apiKey: request.key }) };
    const body = { method: request.method, path: request.path, ...(request.host && { host: request.host }), ...(request.ip && { ip: request.ip }), attributes, headers: pairsOf(request.headers) };
    try {
      setAnswer((await ask<Explanation>("/api/v1/rules/explain", { method: "POST", body })).body);
    } catch (error) {
      setAnswer(undefined);
      setFault(messageOf(error));
    }
  };
  // A denial says its rule and client, from which it is worked out what its request had, and the attributes that are known of it.
  const fill = async () => {
    const { body } = await ask<RuleList>(`/api/v1/rules?prefix=${encodeURIComponent(q.rule)}`); // in a list, where none is no error
    const rule = body.rules.find((r) => r.id === q.rule) ?? { id: q.rule };
    const made = requestOf(rule, q.client);
    const { userId: user = made.user, ...known } = { ...pairsOf(made.attributes), ...pairsOf(q.attributes) };
    const attributes = Object.entries(known).map((p) => p.join(": ")).join("\n");
    const found = { ...made, user, attributes, method: q.method || "GET", path: q.path || "/" };
    keep(found);
    await run({ ...q, ...found });
  };
  useEffect(() => {
    if (!state) return; // an address that was shared is answered at once
    if (q.rule) fill().catch((error: unknown) => setFault(messageOf(error)));
    else void run(q);
  }, [q.rule, q.client]);
  return (
    <>
      <h1 class="lead">Explain a request</h1>
      {q.rule && <p class="faint">What is known of a request that {q.rule} denied. It is explained as the rules and their state are now.{q.ip === none.ip && ` Its address is not known; ${none.ip} stands for it.`}{q.client.includes("\\sha256:") && " Of its API key only a hash is known: type the key to see what it has left."}</p>}
      <form class="row" onSubmit={(e) => { e.preventDefault(); void run(q); }}>
        {field("method", "Method", 8)}{field("path", "Path", 28)}{field("host", "Host", 16)}{field("ip", "Address", 18)}{field("user", "User", 14)}{field("key", "API key", 14)}
        {lines("attributes", "Attributes, name: value")}
        {lines("headers", "Header fields, name: value")}
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
                  <td class={r.onExceed === "shadow" ? "shadow" : ""}>{i === 0 ? (r.onExceed === "shadow" ? "shadow, " : "") + r.outcome + (r.by ? " by " + r.by : "") + (r.class ? ", " + r.class : "") + (r.available !== undefined ? `, ${compact(r.available)} left by all ways` : "") : ""}</td>
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
