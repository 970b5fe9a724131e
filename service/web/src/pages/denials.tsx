// Who was denied, by which rule, how often and with which last request: of all processes, filtered.

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { ask } from "../api";
import type { Denial, Denials as Found } from "../api";
import { compact, integer, timeOf, timeOfDay } from "../format";
import { pairOf, useLive } from "../live";
import { Act, address, ClientLink, download, isRule, messageOf, RuleLink, scopeText, Time, useAsk, useKept, When, Window } from "../ui";
import { reasons, Why } from "./overview";

const none = { client: "", rule: "", reason: "", since: "", q: "", scope: "" };

export function Denials({ state }: { state?: string }) {
  const [kept, keep] = useKept("denials", none, state);
  const [typed, type] = useState(kept);
  const [known, know] = useState(kept);
  if (known !== kept) { // the address says something else
    know(kept);
    if (JSON.stringify(known) !== JSON.stringify(kept)) type(kept);
  }
  const [turn, again] = useState(0);
  const several = useLive().processes?.scope === "all";
  const scope = several && kept.scope !== "process" ? "all" : "process";
  const path = useMemo(() => {
    const query = new URLSearchParams({ limit: "1000", scope });
    for (const name of ["client", "rule", "reason", "q"] as const) if (kept[name].trim()) query.set(name, kept[name].trim());
    const since = timeOf(kept.since, Date.now() * 1000, -1);
    if (since) query.set("since", new Date(since / 1000).toISOString());
    return `/api/v1/denials?${query.toString()}`;
  }, [kept, scope, turn]);
  const { body, fault, again: askAgain } = useAsk<Found>(path);
  const [older, setOlder] = useState<Found[]>([]);
  useEffect(() => setOlder([]), [body]);
  const rows = useMemo(() => {
    const found = new Map<string, Denial>(); // one that was denied again may be on two pages
    for (const d of [body, ...older].flatMap((page) => page?.denials ?? [])) if (!found.has(pairOf(d))) found.set(pairOf(d), d);
    return [...found.values()];
  }, [body, older]);
  const next = (older.at(-1) ?? body)?.next;
  const text = (name: "client" | "rule" | "q", label: string, size: number) => (
    <label class="field"><span>{label}</span><input type="search" size={size} maxLength={256} value={typed[name]} onInput={(e) => type({ ...typed, [name]: e.currentTarget.value })} /></label>
  );
  const choice = (name: "reason" | "scope", label: string, options: [string, string][]) => (
    <label class="field"><span>{label}</span>
      <select value={typed[name]} onChange={(e) => keep({ ...typed, [name]: e.currentTarget.value })}>
        {options.map(([value, words]) => <option key={value} value={value}>{words}</option>)}
      </select>
    </label>
  );
  return (
    <>
      <h1 class="lead">Last denials</h1>
      <form
        class="row"
        onSubmit={(e) => {
          e.preventDefault();
          keep(typed);
          again(turn + 1);
          askAgain();
        }}
      >
        {text("client", "Client: address, user or API key", 24)}
        {text("rule", "Rule", 16)}
        {choice("reason", "Reason", [["", "any"], ...Object.entries(reasons)])}
        <When label="Since: 15m, 03:10" sign={-1} size={14} value={typed.since} set={(since) => type({ ...typed, since })} />
        {text("q", "Request ID, path, client or rule contains", 28)}
        {several && choice("scope", "Of", [["", "all processes"], ["process", "this process"]])}
        <button class="main" type="submit">Search</button>
        {rows.length > 0 && <button type="button" onClick={() => download("denials.csv", "text/csv", csv(rows))}>Download CSV</button>}
        {body && <span class="faint beside">{integer(rows.length)} clients of rules{body.more && ", and older ones"}, {scopeText(body.scope, body.processes)}</span>}
      </form>
      {fault && <p class="fault" role="alert">{messageOf(fault)}</p>}
      {!body && !fault && <p class="empty">Asking {scope === "all" ? "all processes" : "this process"}…</p>}
      {body && <Silent of={body} />}
      {body && <DenialTable label="Denials" rows={rows} empty={<Searched of={body} />} clients />}
      {next && <div class="row"><Act run={() => ask<Found>(`${path}&before=${next}`).then((answer) => setOlder((pages) => [...pages, answer.body]))}>Older ones</Act></div>}
    </>
  );
}

/** Silent names the processes that did not answer. */
export const Silent = ({ of }: { of: Found }) =>
  of.unasked ? <p class="degraded" role="status">Only this process was asked: the Redis that the processes share does not answer.</p> :
  of.silent?.length ? <p class="degraded" role="status">{of.silent.length === 1 ? "A process" : `${of.silent.length} processes`} did not answer: {of.silent.join(", ")}.</p> : null;

/** Searched says among what nothing was found. */
export const Searched = ({ of }: { of: Found }) => (
  <p>None among the last {integer(of.kept)} clients of rules since {timeOfDay(of.from)}, in {of.processes - (of.silent?.length ?? 0)} of {of.processes} {of.processes === 1 ? "process" : "processes"}. Programs that use the library record no denials, and a process that ends takes its own with it.</p>
);

/** csv is a file of denials. A text that a program for tables would take for a formula has a quote before it. */
function csv(rows: Denial[]): string {
  const time = (micros: number) => new Date(micros / 1000).toISOString();
  const cell = (value?: string | number | boolean) => `"${String(value ?? "").replace(/^(?=[=+\-@\t\r])/, "'").replaceAll('"', '""')}"`;
  const line = (d: Denial) => [time(d.first), time(d.at), d.count, d.client, d.rule, d.class, d.reason, d.limit, d.limitName, d.algorithm, d.method, d.path, d.requestId, attributesOf(d, "; "), !!d.shadow, d.process];
  return [["first", "last", "count", "client", "rule", "class", "reason", "limit", "limit_name", "algorithm", "method", "path", "request_id", "attributes", "shadow", "process"], ...rows.map(line)].map((cells) => cells.map(cell).join(",") + "\r\n").join("");
}

/** attributesOf are the attributes of the last request that are known. */
const attributesOf = (d: Denial, between: string) => Object.entries(d.attributes ?? {}).map((pair) => pair.join(": ")).join(between);

/** limitOf is the limit that denied. */
const limitOf = (d: Denial) => (d.limit ? `${compact(d.limit)} ${d.limitName || d.algorithm?.toLowerCase().replaceAll("_", " ") || ""}` : "");

/** DenialTable lists denials; beside their client on a page of their own, else in a panel, which has less room. */
export function DenialTable({ label, rows, empty, clients, low }: { label: string; rows: Denial[]; empty: ComponentChildren; clients?: boolean; low?: boolean }) {
  return (
    <Window
      label={label}
      low={low}
      rows={rows}
      empty={empty}
      head={<tr><th class="t">last</th><th class="t hide-narrow">first</th><th class="n few">denied</th>{clients && <th class="c">client</th>}<th>rule</th>{clients && <th class="hide-narrow" style={{ width: "15%" }}>limit</th>}<th class="hide-narrow" style={{ width: clients ? "13%" : undefined }}>reason</th><th class="hide-narrow">last request</th>{clients && <th class="hide-narrow">its ID</th>}<th class="few" /></tr>}
      row={(d) => (
        <tr key={pairOf(d)}>
          <td><Time micros={d.at} /></td>
          <td class="hide-narrow"><Time micros={d.first} /></td>
          <td class="n" title={`by process ${d.process} last`}>{compact(d.count)}</td>
          {clients && <td><ClientLink name={d.client} /></td>}
          <td><RuleLink id={d.rule} /></td>
          {clients && <td class="hide-narrow" title={limitOf(d)}>{limitOf(d)}</td>}
          <td class="hide-narrow" title={limitOf(d)}><Why of={d} /></td>
          <td class="mono hide-narrow" title={`${d.method ?? ""} ${d.path ?? ""}, ID ${d.requestId ?? "not known"}`}>{d.method} {d.path}</td>
          {clients && <td class="mono hide-narrow" title={d.requestId}>{d.requestId}</td>}
          <td class="n">{isRule(d.rule) && <a href={address("explain", { rule: d.rule ?? "", client: d.client ?? "", method: d.method ?? "", path: d.path ?? "", attributes: attributesOf(d, "\n") })} title="Explain this request: what the rules make of it now">explain</a>}</td>
        </tr>
      )}
    />
  );
}
