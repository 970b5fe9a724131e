// The page that `stint simulate --html` writes. Its report is in the page, beside this script.

import "./colours.css";
import { render } from "preact";
import { duration as inUnits } from "./format";
import { admittedOf, busiest, group, namePart, percent, picture, StepsPlot } from "./steps";
import type { CandidateReport, PartReport, Report, RuleReport, Step } from "./steps";

const time = (micros: number) => new Date(micros / 1000).toISOString().slice(0, 19).replace("T", " ");
const duration = (micros: number) => (micros ? inUnits(micros) : "0 s");
const counted = (n: number, what: string) => `${group(n)} ${what}${n === 1 ? "" : "s"}`;

/** Table has columns of texts, and numbers behind them. Each cell names its column, which narrow screens show beside it. */
function Table({ texts, numbers, rows }: { texts: string[]; numbers: string[]; rows: string[][] }) {
  const kind = (i: number) => (i < texts.length ? undefined : "n");
  const columns = [...texts, ...numbers];
  return (
    <table>
      <thead><tr>{columns.map((name, i) => <th key={name} class={kind(i)}>{name}</th>)}</tr></thead>
      <tbody>{rows.map((row, n) => <tr key={n}>{row.map((cell, i) => <td key={i} class={kind(i)} data-of={columns[i]}>{cell}</td>)}</tr>)}</tbody>
    </table>
  );
}

function Plots({ report, of, said }: { report: Report; of: (c: CandidateReport) => { name: string; steps: Step[] | null }; said: (c: CandidateReport) => string }) {
  const most = busiest(report.candidates.map(of));
  return (
    <div class="grid">
      {report.candidates.map((c, i) => (
        <figure key={i}>
          <figcaption><b>{c.name}</b> {said(c)}</figcaption>
          <StepsPlot of={c} steps={of(c).steps} most={most} height={150} sync="report" label={`${of(c).name} by ${c.name}: requests per ${inUnits(c.step)}, up to ${group(most)}; ${said(c)}`} />
        </figure>
      ))}
    </div>
  );
}

/** figure is a row of the table of all rules. The peak is that of the first limit. */
function figure(c: CandidateReport, r: RuleReport): string[] {
  const limit = r.limits?.[0];
  return [
    c.name, r.rule ?? "", group(r.requests), group(r.admitted), group(r.denied), percent(r.denied, r.requests),
    ...(r.clients ? [group(r.clients), group(r.clientsDenied ?? 0), duration(r.longestShut ?? 0)] : ["", "", ""]),
    limit ? `${limit.atLeast ? "≥ " : ""}${group(limit.clientPeak)} ${limit.span ? "in " + duration(limit.span) : "at once"}` : "",
    duration(Math.max(r.longestWait, r.longestDelay)),
  ];
}

/** Hurt says which clients a rule denies, and how much. */
function Hurt({ name, rule: r }: { name: string; rule: RuleReport }) {
  const [clients, denied, shares] = [r.clients ?? 0, r.clientsDenied ?? 0, r.shares ?? []];
  if (denied === 0) return <><h3>{name}</h3><p>Nobody: none of {counted(clients, "client")} is ever denied.</p></>;
  const much = shares.slice(5).reduce((sum, n) => sum + n, 0);
  return (
    <>
      <h3>{name}</h3>
      <p>{group(denied)} of {counted(clients, "client")} ({percent(denied, clients)}) {denied === 1 ? "is" : "are"} denied at least once, {much ? group(much) : "none"} of them more than half of what they ask for. The longest that one was shut out is {duration(r.longestShut ?? 0)}.</p>
      <div class="beside">
        <figure><figcaption>Clients by the share of their requests that is denied</figcaption><Shares of={shares} /></figure>
        <Table
          texts={["most denied"]} numbers={["requests", "denied", "of them", "longest shut out"]}
          rows={(r.mostDenied ?? []).map((c) => [c.key, group(c.admitted + c.denied), group(c.denied), percent(c.denied, c.admitted + c.denied), duration(c.shut)])}
        />
      </div>
    </>
  );
}

function Shares({ of }: { of: number[] }) {
  const most = Math.max(1, ...of);
  return (
    <svg viewBox="0 0 320 128" role="img" aria-label={`${counted(of[0] ?? 0, "client")} denied nothing`}>
      {["none", "≤ 1 %", "≤ 10 %", "≤ 25 %", "≤ 50 %", "≤ 75 %", "< 100 %", "all"].map((name, i) => {
        const [n, y] = [of[i] ?? 0, 16 * i];
        const width = n && Math.max(1, (208 * n) / most);
        return <g key={name}><text x="58" y={y + 12} text-anchor="end">{name}</text><rect class={i ? "d" : "a"} x="64" y={y + 3} width={width} height="11" /><text x={68 + width} y={y + 12}>{group(n)}</text></g>;
      })}
    </svg>
  );
}

function Page({ report: r }: { report: Report }) {
  const shadow = r.candidates.some((c) => c.total.shadow > 0);
  const part = (i: number) => (c: CandidateReport) => c.parts?.[i] as PartReport;
  const rules = (c: CandidateReport) => c.rules ?? [];
  return (
    <>
      <h1>What the limits would have done</h1>
      <p class="faint">{group(r.events)} requests in {duration(r.last - r.first)}, from {time(r.first)} to {time(r.last)} UTC.</p>
      <h2>Requests over time</h2>
      <p>
        Each plot has the requests per {inUnits(r.candidates[0]?.step ?? 0)}, by the same scales, in UTC: <span><span class="swatch offered" />offered</span>, <span><span class="swatch admitted" />admitted</span>, <span><span class="swatch denied" />denied</span>
        {shadow && <>, <span><span class="swatch shadow" />denied if rules in shadow were enforced</span></>}. The values of a time are shown under the mouse, or by the arrow keys.{" "}
        <a download="plots.svg" href={"data:image/svg+xml," + encodeURIComponent(picture(r))}>All plots as one SVG</a>
      </p>
      <Plots report={r} of={(c) => c} said={({ total: t }) => `denies ${group(t.denied)} of ${group(t.requests)} requests (${percent(t.denied, t.requests)})`} />
      {r.by && <h2>By {r.by}</h2>}
      {r.candidates[0]?.parts?.map((p, i) => (
        <section key={i}>
          <h3>{namePart(p)}</h3>
          <Plots report={r} of={(c) => ({ ...part(i)(c), name: namePart(p) })} said={(c) => "admits " + admittedOf(part(i)(c))} />
        </section>
      ))}
      <h2>In figures</h2>
      <Table
        texts={["limits", "rule"]}
        numbers={["requests", "admitted", "denied", "of them", "clients", "denied once or more", "longest shut out", "most of one client", "longest wait"]}
        rows={r.candidates.flatMap((c) => [...rules(c), ...(rules(c).length === 1 ? [] : [{ ...c.total, rule: "all rules" }])].map((rule) => figure(c, rule)))}
      />
      <h2>Who is hurt</h2>
      {r.candidates.flatMap((c) => rules(c).filter((rule) => rule.clients).map((rule) => <Hurt key={c.name + rule.rule} name={c.name + (rules(c).length > 1 ? ", rule " + rule.rule : "")} rule={rule} />))}
      {r.notes && r.notes.length > 0 && <><h2>What to know</h2><ul>{r.notes.map((n) => <li key={n}>{n}</li>)}</ul></>}
    </>
  );
}

render(<Page report={JSON.parse(document.getElementById("report")?.textContent ?? "") as Report} />, document.body);
