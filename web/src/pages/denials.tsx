// The last denials, searched.

import { useState } from "preact/hooks";
import type { Denial } from "../api";
import { ClientLink, messageOf, RuleLink, scopeText, Time, useAsk, Window } from "../ui";
import { reasonText } from "./overview";

export function Denials() {
  const [text, setText] = useState("");
  const [scope, setScope] = useState("all");
  const query = new URLSearchParams({ limit: "1000", scope });
  if (text.trim()) query.set("q", text.trim());
  const { body, fault, again } = useAsk<{ scope: string; processes: number; denials: Denial[] }>(`/api/v1/denials?${query.toString()}`);
  return (
    <>
      <h1 class="lead">Last denials</h1>
      <div class="row">
        <label class="field"><span>Search rule, client, reason, request ID</span><input type="search" value={text} onInput={(e) => setText(e.currentTarget.value)} /></label>
        <label class="field"><span>Of</span>
          <select value={scope} onChange={(e) => setScope(e.currentTarget.value)}>
            <option value="all">all processes</option>
            <option value="process">this process, further back</option>
          </select>
        </label>
        <button onClick={again}>Ask again</button>
        {body && <span class="faint">{body.denials.length} denials, {scopeText(body.scope, body.processes)}</span>}
      </div>
      {fault && <p class="fault" role="alert">{messageOf(fault)}</p>}
      {body && (
        <Window
          rows={body.denials}
          empty={text ? "No denial matches." : "Nothing was denied."}
          head={<tr><th>time</th><th>client</th><th>rule</th><th>reason</th><th class="hide-narrow">request</th></tr>}
          row={(d) => (
            <tr key={d.process + "/" + d.seq}>
              <td><Time micros={d.at} /></td>
              <td><ClientLink name={d.client} /></td>
              <td><RuleLink id={d.rule} /></td>
              <td>{reasonText(d.reason)}</td>
              <td class="mono hide-narrow">{d.requestId}</td>
            </tr>
          )}
        />
      )}
    </>
  );
}
