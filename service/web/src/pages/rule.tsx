// One rule: what it does, its text, and the way of a change: in shadow, compared, enforced.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ask, Problem } from "../api";
import type { Denials, Rule, RuleList, RuleRevision, Validation } from "../api";
import { compact, duration, share, spanOf, timeOfDay } from "../format";
import { pairOf, RULE_SECONDS, useLive } from "../live";
import type { Live, Ring, RuleActivity } from "../live";
import { Plot } from "../plot";
import { Act, address, at, ClientLink, CopyYAML, messageOf, Panel, perSecond, Time, useAsk, useEvery } from "../ui";
import { diff, yaml } from "../yaml";
import { Why } from "./overview";
import { matchText, stateOf, templates, what } from "./rules";

/** candidateOf is the ID of the rule in shadow by which a change is tried. */
const candidateOf = (id: string) => id + ".candidate";

export function RulePage({ id, template, writes, edits }: { id?: string; template?: string; writes: boolean; edits: boolean }) {
  const rule = useAsk<Rule>(id ? `/api/v1/rules/${encodeURIComponent(id)}` : undefined);
  // Asked for in a list, where none is no error.
  const candidates = useAsk<RuleList>(id ? `/api/v1/rules?prefix=${encodeURIComponent(candidateOf(id))}` : undefined);
  const candidate = candidates.body?.rules.find((r) => r.id === candidateOf(id ?? ""));
  if (!id) return <><h1 class="lead">New rule</h1><Editor start={(template && templates[template]) || templates["Every client address"] || ""} writes={edits} saved={(to) => (location.hash = at("rules", to))} /></>;
  if (rule.fault) return <p class="fault" role="alert">{messageOf(rule.fault)}</p>;
  if (!rule.body) return <p class="empty">Reading…</p>;
  const again = () => {
    rule.again();
    candidates.again();
  };
  return (
    <>
      <h1 class="lead">{rule.body.name ?? id}: {what(rule.body)}</h1>
      <p class="faint">{rule.body.name && `${id}, `}<span class={stateOf(rule.body) === "shadow" ? "shadow" : ""}>{stateOf(rule.body)}</span>, {matchText(rule.body)}{rule.body.set ? `, set ${rule.body.set}` : ""}{Object.entries(rule.body.labels ?? {}).map(([k, v]) => `, ${k}: ${v}`)}</p>
      <Activity id={id} candidate={candidate?.id} />
      {candidate && <Compare key={JSON.stringify(candidate)} rule={rule.body} etag={rule.etag} candidate={candidate} writes={edits} again={again} />}
      <Panel title="The rule" scope="in force everywhere, seconds after saving">
        <Editor key={id} rule={rule.body} etag={rule.etag} start={yaml(rule.body)} writes={edits} saved={again} candidate />
        {writes && !edits && <div class="row"><CopyYAML of={[rule.body]} /></div>}
      </Panel>
      <div class="two">
        <div>
          <Denied id={id} shadow={stateOf(rule.body) === "shadow"} />
          {candidate && <Denied id={candidate.id} shadow />}
        </div>
        <div>
          <History id={id} />
          {writes && (
            <Panel title={edits ? "Reset or remove" : "Reset"}>
              <div class="row"><Act done="reset" confirm={`Reset all clients of ${id}?`} run={() => ask(`/api/v1/rules/${encodeURIComponent(id)}/reset`, { method: "POST", body: { all: true } })}>Reset all clients of this rule</Act>{edits && <Act confirm={`Remove the rule ${id}?`} run={() => ask(`/api/v1/rules/${encodeURIComponent(id)}`, { method: "DELETE", ifMatch: rule.etag }).then(() => (location.hash = "#/rules"))}>Remove the rule</Act>}</div>
            </Panel>
          )}
        </div>
      </div>
    </>
  );
}

/** Denied are the clients that the rule denies, or would deny if it is in shadow, those with most denials first. A rule may have been in shadow for a time: apart. */
function Denied({ id, shadow }: { id: string; shadow?: boolean }) {
  const { body, fault, again } = useAsk<Denials>(`/api/v1/denials?scope=process&limit=1000&rule=${encodeURIComponent(id)}`);
  useEvery(5, again);
  const clients = useMemo(() => [...(body?.denials ?? [])].sort((a, b) => b.count - a.count), [body]);
  return (
    <Panel title={shadow ? `Clients that ${id} would deny` : "Clients that it denies"} scope={body ? `since ${timeOfDay(body.from)}, this process` : "this process"} more={<a href={address("denials", { rule: id })}>denials</a>}>
      {fault && <p class="fault">{messageOf(fault)}</p>}
      {body && clients.length === 0 && <p class="empty">{shadow ? "It would have denied nobody lately." : "It has denied nobody lately."}</p>}
      {clients.length > 0 && (
        <table>
          <thead><tr><th>client</th><th>why</th><th>last</th><th class="n">{shadow ? "would deny" : "denied"}</th></tr></thead>
          <tbody>
            {clients.slice(0, 10).map((c) => (
              <tr key={pairOf(c)}><td><ClientLink name={c.client} /></td><td><Why of={c} /></td><td><Time micros={c.at} /></td><td class={c.shadow ? "n shadow" : "n denied"}>{compact(c.count)}</td></tr>
            ))}
          </tbody>
        </table>
      )}
      {clients.length > 10 && <p class="faint">and {compact(clients.length - 10)} others</p>}
    </Panel>
  );
}

/** Activity shows what the rule decides, and what a change of it in shadow would deny. */
function Activity({ id, candidate }: { id: string; candidate?: string }) {
  const live = useLive();
  const activity = live.rules.get(id);
  const tried = candidate ? live.rules.get(candidate)?.shadow : activity?.shadow;
  const until = live.now - (live.now % 2);
  const data = useMemo(() => {
    const times: number[] = [];
    for (let t = until - 300 + 2; t <= until; t += 2) times.push(t);
    const per = (ring?: Ring) => perSecond(ring, until, 300, 2);
    return { times, admitted: per(activity?.admitted), denied: per(activity?.denied), shadow: per(tried) };
  }, [until, activity, tried, live.started]);
  if (!activity) return <p class="empty">This rule has decided nothing lately in this process.</p>;
  return <Plot {...data} height={140} label={`Requests per second that ${id} decided in the last five minutes`} />;
}

/** begunAt is the second in which this process took up a rule as it is, by the revision that changed it last. */
function begunAt(live: Live, revision?: RuleRevision): number {
  const changes = live.changes.filter((c) => c.kind === "rules"); // the newest first
  // A process that started later, or that left revisions out, took it up with a later one.
  const taken = revision && changes.filter((c) => Number(c.state) >= revision.revision).at(-1)?.at;
  // Where no revision is kept, it has not changed since any rule did.
  return Math.floor((taken ?? (revision ? Date.parse(revision.at) * 1000 : (changes[0]?.at ?? 0))) / 1e6);
}

/** since counts what a rule did after a second until now, at most the last hour: by whole minutes if seconds are not kept so long. */
function since(rule: RuleActivity | undefined, of: "admitted" | "denied" | "shadow", begin: number, now: number): number {
  if (now - begin <= RULE_SECONDS) return rule?.[of].sum(now - begin, now) ?? 0;
  const minute = Math.floor(now / 60);
  return rule?.minutes[of].sum(Math.min(60, minute - Math.floor(begin / 60)), minute) ?? 0;
}

/** useNewest asks for the newest revision that changed a rule. */
const useNewest = (id: string) => useAsk<{ revisions: RuleRevision[]; rulesFrom?: string }>(`/api/v1/rule-revisions?rule=${encodeURIComponent(id)}&limit=1`);

function Compare({ rule, etag, candidate, writes, again }: { rule: Rule; etag?: string; candidate: Rule; writes: boolean; again: () => void }) {
  const live = useLive();
  const now = live.rules.get(rule.id);
  const then = live.rules.get(candidate.id);
  const { body: tried, fault, again: askAgain } = useNewest(candidate.id);
  const { body: enforced, fault: otherFault, again: askOtherAgain } = useNewest(rule.id);
  const changed = live.changes.find((c) => c.kind === "rules")?.state;
  useEffect(() => {
    askAgain();
    askOtherAgain();
  }, [changed]);
  // Since both are as they are now: an edit of either begins the comparison anew.
  const edited = enforced?.revisions[0];
  const begun = begunAt(live, tried?.revisions[0]);
  const begin = Math.max(begun, edited ? begunAt(live, edited) : 0);
  const age = Math.max(0, live.now - begun);
  const denied = since(now, "denied", begin, live.now);
  const would = since(then, "shadow", begin, live.now);
  // One denominator: the rule counts the requests that it decided, the change those that were asked of its limits.
  const all = Math.max(denied + since(now, "admitted", begin, live.now), would + since(then, "admitted", begin, live.now));
  const span = Math.max(0, ...[candidate, ...(candidate.overrides ?? [])].flatMap((r) => r.limits ?? []).map(spanOf));
  const enforce = async () => {
    // Both in one edit, so that no request meets neither or both.
    const { body, etag: tag } = await ask<RuleList>("/api/v1/rules");
    const current = body.rules.find((r) => r.id === rule.id);
    if (!current || JSON.stringify(current) !== JSON.stringify(rule)) throw new Problem(412, "Somebody has changed the rule meanwhile. Reload the page.", etag);
    const next: Rule = { ...candidate, id: rule.id, on_exceed: rule.on_exceed };
    if (next.on_exceed === undefined) delete next.on_exceed;
    const rules = body.rules.filter((r) => r.id !== candidate.id).map((r) => (r.id === rule.id ? next : r));
    await ask(`/api/v1/rules?comment=${encodeURIComponent(`enforce what ${candidate.id} tried`)}`, { method: "PUT", body: { rules }, ifMatch: tag });
    again();
  };
  if ((!tried && !fault) || (!enforced && !otherFault)) return null; // when it began is not known yet
  return (
    <Panel title="Compared with the change in shadow" scope={`${live.now - begin > 3600 ? "last hour" : `since ${timeOfDay(begin * 1e6)}`}, this process`}>
      <table>
        <thead><tr><th>rule</th><th>limit</th><th class="n">denied</th><th class="n">share of requests</th></tr></thead>
        <tbody>
          <tr><td>in force</td><td>{what(rule)}</td><td class="n denied">{compact(denied)}</td><td class="n">{share(denied, all)}</td></tr>
          <tr><td class="shadow">in shadow</td><td>{what(candidate)}</td><td class="n shadow">{compact(would)}</td><td class="n">{share(would, all)}</td></tr>
        </tbody>
      </table>
      <p class="faint">Both rows are of the same {compact(all)} requests. The change is {duration(age * 1e6)} old here. It started with full buckets and empty windows.</p>
      {age < span && <p class="degraded" role="status">It has not seen a whole {duration(span * 1e6)}, its longest limit: it may deny more than this says.</p>}
      {writes && (
        <div class="row">
          <Act main run={enforce}>Enforce the change</Act>
          <Act run={() => ask(`/api/v1/rules/${encodeURIComponent(candidate.id)}`, { method: "DELETE" }).then(again)}>Drop the change</Act>
        </div>
      )}
    </Panel>
  );
}

interface EditorProps {
  rule?: Rule;
  etag?: string;
  start: string;
  writes: boolean;
  saved: (id: string) => void;
  candidate?: boolean;
}

/** draftOf is where a draft is kept until it is saved: a reload of the page does not lose it. */
const draftOf = (id?: string) => "stint.draft." + (id ?? "");

function Editor({ rule, etag, start, writes, saved, candidate }: EditorProps) {
  const [text, setText] = useState(() => sessionStorage.getItem(draftOf(rule?.id)) ?? start);
  const [base, setBase] = useState({ text: start, etag });
  const [check, setCheck] = useState<Validation>();
  const [note, setNote] = useState("");
  const [newer, setNewer] = useState(false);
  const changed = text !== base.text;
  const tries = candidate && rule && !rule.id.endsWith(".candidate") && !rule.within && !rule.otherwise; // in shadow it can't share another rule's limit
  const newest = useRef(0);
  const [Form, setForm] = useState<typeof import("./form").Form>();
  useEffect(() => void import("./form").then((m) => setForm(() => m.Form)), []); // it reads YAML, which other pages need not

  // What is in force may change under the editor: the draft stays, and its author is told.
  useEffect(() => {
    if (etag === base.etag) return;
    if (changed) setNewer(true);
    else {
      setText(start);
      setBase({ text: start, etag });
    }
  }, [etag, start]);

  useEffect(() => {
    if (changed) sessionStorage.setItem(draftOf(rule?.id), text);
    else sessionStorage.removeItem(draftOf(rule?.id));
    if (!changed && rule) return setCheck(undefined);
    const turn = ++newest.current;
    const timer = setTimeout(() => {
      const indented = text.replace(/^/gm, "  ").replace(/^ {2}/, "- ");
      ask<Validation>("/api/v1/rules/validate?partial=true", { method: "POST", text: indented }).then(
        ({ body }) => turn === newest.current && setCheck(body),
        (fault: unknown) => turn === newest.current && setCheck({ valid: false, faults: [{ line: 1, column: 1, detail: messageOf(fault) }] }),
      );
    }, 250);
    return () => clearTimeout(timer);
  }, [text, changed]);

  const idOf = () => rule?.id ?? /^id:\s*"?([^"\s#]+)/m.exec(text)?.[1] ?? "";
  const put = async (id: string, body: string, conditions: { ifMatch?: string; ifNoneMatch?: string }) => {
    const comment = note ? `?comment=${encodeURIComponent(note)}` : "";
    try {
      await ask(`/api/v1/rules/${encodeURIComponent(id)}${comment}`, { method: "PUT", text: body, ...conditions });
    } catch (fault) {
      if (fault instanceof Problem && fault.status === 412) throw new Problem(412, conditions.ifNoneMatch ? `There is a rule ${id} already.` : "Somebody else has changed this rule since you began. Your draft is kept; look at what is in force now, then save again.");
      throw fault;
    }
  };
  const save = async () => {
    const id = idOf();
    await put(id, text, rule ? { ifMatch: base.etag } : { ifNoneMatch: "*" });
    sessionStorage.removeItem(draftOf(rule?.id));
    setBase({ text, etag: undefined });
    saved(id);
  };
  const tryIt = async () => {
    if (!rule) return;
    const shadow = text.replace(/^id:.*$/m, `id: ${JSON.stringify(candidateOf(rule.id))}`).replace(/^on_exceed:.*\n?/m, "").replace(/^max_wait(ers)?:.*\n?/gm, "").replace(/\n*$/, "\n") + "on_exceed: shadow\n";
    await put(candidateOf(rule.id), shadow, {});
    sessionStorage.removeItem(draftOf(rule.id));
    setText(base.text);
    saved(rule.id);
  };
  return (
    <>
      <div class="two views">
        {Form ? <Form text={text} set={setText} faults={check?.faults ?? []} writes={writes} fresh={!rule} /> : <p class="empty">Reading…</p>}
        <div>
          <h2>YAML</h2>
          <textarea rows={Math.min(36, Math.max(14, text.split("\n").length + 1))} spellcheck={false} aria-label="The rule, as YAML" value={text} readOnly={!writes} onInput={(e) => setText(e.currentTarget.value)} />
          {check?.faults?.map((f) => <p key={f.line + f.detail} class="fault">{f.line ? `line ${f.line}, column ${Math.max(1, f.column - 2)}: ` : ""}{f.detail}</p>)}
          {check?.warnings?.map((w) => <p key={w} class="faint">{w}</p>)}
        </div>
      </div>
      {newer && <p class="fault" role="alert">The rule in force has changed since you began. Your draft is kept. <button onClick={() => { setBase({ text: start, etag }); setNewer(false); }}>Compare with what is in force now</button> <button onClick={() => { setText(start); setBase({ text: start, etag }); setNewer(false); }}>Drop my draft</button></p>}
      {changed && rule && <Diff before={base.text} after={text} />}
      {writes && (
        <div class="row">
          <label class="field"><span>What for (kept with the revision)</span><input size={32} maxLength={512} value={note} onInput={(e) => setNote(e.currentTarget.value)} /></label>
          {rule && tries && <Act main disabled={!changed || check?.valid === false} run={tryIt}>Try it in shadow</Act>}
          <Act main={!tries} disabled={(!changed && !!rule) || check?.valid === false} run={save}>{rule ? "Enforce at once" : "Make the rule"}</Act>
          {changed && rule && <button onClick={() => setText(base.text)}>Undo</button>}
          {!changed && tries && <span class="faint beside">Change the rule above, then try the change in shadow: it decides, and denies nobody.</span>}
        </div>
      )}
    </>
  );
}

export function Diff({ before, after }: { before: string; after: string }) {
  const lines = useMemo(() => diff(before, after), [before, after]);
  return (
    <pre aria-label="What changes">
      {lines.map((l, i) => <div key={i} class={l.kind === "-" ? "less" : l.kind === "+" ? "more" : "faint"}>{l.kind} {l.line}</div>)}
    </pre>
  );
}

function History({ id }: { id: string }) {
  const { body, fault } = useAsk<{ revisions: RuleRevision[]; rulesFrom?: string }>(`/api/v1/rule-revisions?rule=${encodeURIComponent(id)}&limit=20`);
  return (
    <Panel title="Revisions that changed it" more={<a href="#/revisions">all</a>}>
      {fault && <p class="fault">{messageOf(fault)}</p>}
      <table><tbody>
        {body?.revisions.map((r) => (
          <tr key={r.revision}><td class="n"><a href={at("revisions", String(r.revision))}>{r.revision}</a></td><td><Time micros={Date.parse(r.at) * 1000} /></td><td>{r.by}</td><td class="faint">{r.comment || r.action}</td></tr>
        ))}
      </tbody></table>
      {body?.revisions.length === 0 && <p class="empty">None is kept{body.rulesFrom && `, as rules come from ${body.rulesFrom}`}.</p>}
    </Panel>
  );
}
