// Who changed the rules, what, and the way back.

import { useState } from "preact/hooks";
import { ask } from "../api";
import type { RuleRevision, RuleRevisionDiff } from "../api";
import { Act, at, messageOf, Time, useAsk, Window } from "../ui";
import { yaml } from "../yaml";
import { Diff } from "./rule";

interface Page {
  revisions: RuleRevision[];
  next?: number;
}

export function Revisions() {
  const path = "/api/v1/rule-revisions?limit=500";
  const { body, fault } = useAsk<Page>(path);
  const [older, setOlder] = useState<Page[]>([]);
  const rows = [...(body?.revisions ?? []), ...older.flatMap((page) => page.revisions)];
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
          row={(r) => (
            <tr key={r.revision}>
              <td><a href={at("revisions", String(r.revision))}>{r.revision}</a></td>
              <td><Time micros={Date.parse(r.at) * 1000} /></td>
              <td>{r.by}</td>
              <td title={r.comment || r.action}>{r.comment || r.action}</td>
              <td class="n hide-narrow">{r.rules}</td>
            </tr>
          )}
        />
      )}
      {next && <div class="row"><Act run={() => ask<Page>(`${path}&before=${next}`).then((answer) => setOlder((pages) => [...pages, answer.body]))}>Older ones</Act></div>}
    </>
  );
}

export function Revision({ number, edits }: { number: string; edits: boolean }) {
  const { body, fault } = useAsk<RuleRevisionDiff>(`/api/v1/rule-revisions/${encodeURIComponent(number)}`);
  if (fault) return <p class="fault" role="alert">{messageOf(fault)}</p>;
  if (!body) return <p class="empty">Reading…</p>;
  return (
    <>
      <h1 class="lead">Revision {body.revision}, <Time micros={Date.parse(body.at) * 1000} />{body.by ? `, by ${body.by}` : ""}{body.comment ? `: ${body.comment}` : ""}</h1>
      <p><a href="#/revisions">All revisions</a></p>
      {body.changes.length === 0 && <p class="empty">It changed no rule.</p>}
      <div class="plots">
        {body.changes.map((c) => (
          <section key={c.id}>
            <h2><a href={at("rules", c.id)}>{c.id}</a> <span class="faint">{c.before ? (c.after ? "changed" : "removed") : "added"}</span></h2>
            <Diff before={c.before ? yaml(c.before) : ""} after={c.after ? yaml(c.after) : ""} />
            {edits && <div class="row"><Act done="It is as it was before." confirm={`Make ${c.id} what it was before revision ${body.revision}? Other rules stay as they are.`} run={() => ask(`/api/v1/rule-revisions/${body.since}/rollback?rule=${encodeURIComponent(c.id)}`, { method: "POST" })}>Undo this for {c.id} alone</Act></div>}
          </section>
        ))}
      </div>
      {edits && (
        <div class="row">
          <Act main confirm={`Make all rules what they were at revision ${body.revision}?`} run={() => ask(`/api/v1/rule-revisions/${body.revision}/rollback`, { method: "POST" }).then(() => (location.hash = "#/revisions"))}>Roll back to this revision</Act>
          {body.revision > 0 && <Act confirm={`Make all rules what they were before revision ${body.revision}?`} run={() => ask(`/api/v1/rule-revisions/${body.since}/rollback`, { method: "POST" }).then(() => (location.hash = "#/revisions"))}>Undo this revision and all after it</Act>}
        </div>
      )}
    </>
  );
}
