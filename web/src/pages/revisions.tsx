// Who changed the rules, what, and the way back.

import { ask } from "../api";
import type { FullVersion, Version } from "../api";
import { Act, at, messageOf, useAsk, Window } from "../ui";
import { yaml } from "../yaml";
import { Diff } from "./rule";

export function Revisions() {
  const { body, fault } = useAsk<{ versions: Version[]; next?: number }>("/api/v1/rule-versions?limit=500");
  return (
    <>
      <h1 class="lead">Revisions of the rules</h1>
      {fault && <p class="fault" role="alert">{messageOf(fault)}</p>}
      {body && (
        <Window
          rows={body.versions}
          empty="The rules have not been edited here."
          head={<tr><th class="n" style={{ width: "72px" }}>revision</th><th>time</th><th>by</th><th>what</th><th class="n hide-narrow">rules</th></tr>}
          row={(v) => (
            <tr key={v.version}>
              <td class="n"><a href={at("revisions", String(v.version))}>{v.version}</a></td>
              <td>{new Date(v.at).toLocaleString()}</td>
              <td>{v.by}</td>
              <td>{v.comment || v.action}</td>
              <td class="n hide-narrow">{v.rules}</td>
            </tr>
          )}
        />
      )}
    </>
  );
}

export function Revision({ number, writes }: { number: string; writes: boolean }) {
  const { body, fault } = useAsk<FullVersion>(`/api/v1/rule-versions/${encodeURIComponent(number)}`);
  if (fault) return <p class="fault" role="alert">{messageOf(fault)}</p>;
  if (!body) return <p class="empty">Reading…</p>;
  return (
    <>
      <h1 class="lead">Revision {body.version}, {new Date(body.at).toLocaleString()}{body.by ? `, by ${body.by}` : ""}{body.comment ? `: ${body.comment}` : ""}</h1>
      {body.changes.length === 0 && <p class="empty">It changed no rule.</p>}
      {body.changes.map((c) => (
        <section key={c.id} style={{ margin: "16px 0" }}>
          <h2><a href={at("rules", c.id)}>{c.id}</a> <span class="faint">{c.before ? (c.after ? "changed" : "removed") : "added"}</span></h2>
          <Diff before={c.before ? yaml(c.before) : ""} after={c.after ? yaml(c.after) : ""} />
        </section>
      ))}
      {writes && (
        <div class="row">
          <Act confirm={`Make all rules what they were at revision ${body.version}?`} run={() => ask(`/api/v1/rule-versions/${body.version}/rollback`, { method: "POST" }).then(() => (location.hash = "#/revisions"))}>Roll back to this revision</Act>
          {body.version > 0 && <Act confirm={`Make all rules what they were before revision ${body.version}?`} run={() => ask(`/api/v1/rule-versions/${body.since}/rollback`, { method: "POST" }).then(() => (location.hash = "#/revisions"))}>Undo this revision and all after it</Act>}
        </div>
      )}
    </>
  );
}
