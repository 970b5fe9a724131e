// Who changed the rules, what, and the way back.

import { useState } from "preact/hooks";
import { ask } from "../api";
import type { FullVersion, Version } from "../api";
import { Act, at, messageOf, Time, useAsk, Window } from "../ui";
import { yaml } from "../yaml";
import { Diff } from "./rule";

interface Page {
  versions: Version[];
  next?: number;
}

export function Revisions() {
  const path = "/api/v1/rule-versions?limit=500";
  const { body, fault } = useAsk<Page>(path);
  const [older, setOlder] = useState<Page[]>([]);
  const rows = [...(body?.versions ?? []), ...older.flatMap((page) => page.versions)];
  const next = (older.at(-1) ?? body)?.next;
  return (
    <>
      <h1 class="lead">Revisions of the rules</h1>
      {fault && <p class="fault" role="alert">{messageOf(fault)}</p>}
      {body && (
        <Window
          label="Revisions"
          rows={rows}
          empty={<p>No revision yet. Each edit of the rules makes one. Rules that are read from a file or from another service have none; the <a href="#/">overview</a> shows when they changed.</p>}
          head={<tr><th class="rev">revision</th><th class="when">time</th><th class="by">by</th><th>what</th><th class="n hide-narrow" style={{ width: "64px" }}>rules</th></tr>}
          row={(v) => (
            <tr key={v.version}>
              <td><a href={at("revisions", String(v.version))}>{v.version}</a></td>
              <td><Time micros={Date.parse(v.at) * 1000} /></td>
              <td>{v.by}</td>
              <td title={v.comment || v.action}>{v.comment || v.action}</td>
              <td class="n hide-narrow">{v.rules}</td>
            </tr>
          )}
        />
      )}
      {next && <div class="row"><Act run={() => ask<Page>(`${path}&before=${next}`).then((answer) => setOlder((pages) => [...pages, answer.body]))}>Older ones</Act></div>}
    </>
  );
}

export function Revision({ number, writes }: { number: string; writes: boolean }) {
  const { body, fault } = useAsk<FullVersion>(`/api/v1/rule-versions/${encodeURIComponent(number)}`);
  if (fault) return <p class="fault" role="alert">{messageOf(fault)}</p>;
  if (!body) return <p class="empty">Reading…</p>;
  return (
    <>
      <h1 class="lead">Revision {body.version}, <Time micros={Date.parse(body.at) * 1000} />{body.by ? `, by ${body.by}` : ""}{body.comment ? `: ${body.comment}` : ""}</h1>
      <p><a href="#/revisions">All revisions</a></p>
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
