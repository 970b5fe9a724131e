// The last denials, searched.

import { useEffect, useState } from "preact/hooks";
import { ask } from "../api";
import type { Denial } from "../api";
import { integer } from "../format";
import { useLive } from "../live";
import { Act, ClientLink, messageOf, RuleLink, scopeText, Time, useAsk, useKept, Window } from "../ui";
import { Why } from "./overview";

interface Found {
  scope: string;
  processes: number;
  denials: Denial[];
  next?: number; // the number of the last one, if there are older ones
}

export function Denials({ state }: { state?: string }) {
  const [{ q, scope: chosen }, keep] = useKept("denials", { q: "", scope: "" }, state);
  const several = useLive().processes?.scope === "all";
  const scope = several && chosen !== "process" ? "all" : "process";
  const query = new URLSearchParams({ limit: "1000", scope });
  if (q.trim()) query.set("q", q.trim());
  const path = `/api/v1/denials?${query.toString()}`;
  const { body, fault, again } = useAsk<Found>(path);
  const [older, setOlder] = useState<Found[]>([]);
  useEffect(() => setOlder([]), [body]);
  const rows = [...(body?.denials ?? []), ...older.flatMap((page) => page.denials)];
  const next = (older.at(-1) ?? body)?.next;
  return (
    <>
      <h1 class="lead">Last denials</h1>
      <div class="row">
        <label class="field"><span>Search rule, client, reason, request ID</span><input type="search" size={32} value={q} onInput={(e) => keep({ q: e.currentTarget.value })} /></label>
        {several && <label class="field"><span>Of</span>
          <select value={scope} onChange={(e) => keep({ scope: e.currentTarget.value === "all" ? "" : e.currentTarget.value })}>
            <option value="all">all processes</option>
            <option value="process">this process, further back</option>
          </select>
        </label>}
        <button onClick={again}>Refresh</button>
        {body && <span class="faint beside">{integer(rows.length)} denials, {scopeText(body.scope, body.processes)}</span>}
      </div>
      {fault && <p class="fault" role="alert">{messageOf(fault)}</p>}
      {body && (
        <Window
          label="Denials"
          rows={rows}
          empty={q ? "No denial matches." : "Nothing was denied."}
          head={<tr><th class="t">time</th><th class="c">client</th><th>rule</th><th>reason</th><th class="hide-narrow">request</th></tr>}
          row={(d) => (
            <tr key={d.process + "/" + d.seq}>
              <td><Time micros={d.at} /></td>
              <td><ClientLink name={d.client} /></td>
              <td><RuleLink id={d.rule} /></td>
              <td><Why of={d} /></td>
              <td class="mono hide-narrow">{d.requestId}</td>
            </tr>
          )}
        />
      )}
      {next && <div class="row"><Act run={() => ask<Found>(`${path}&before=${next}`).then((answer) => setOlder((pages) => [...pages, answer.body]))}>Older ones</Act></div>}
    </>
  );
}
