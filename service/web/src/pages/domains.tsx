// The domains of Envoy's rate limit service, and what their limits do.

import { useLive } from "../live";
import type { RuleActivity } from "../live";
import { integer, share } from "../format";
import { address, messageOf, useAsk } from "../ui";

/** A DomainLimit is one of a domain. */
interface DomainLimit {
  id: string;
  rule: string; // what events call it
  name?: string;
  requests: number;
  unit?: string;
  calendar?: boolean;
  timeZone?: string;
  algorithm?: string;
  accounting: string;
  unlimited?: boolean;
  shadow?: boolean;
  quota?: boolean;
}

interface Domain {
  name: string;
  from: string;
  limits: DomainLimit[];
}

export interface DomainList {
  domains: Domain[];
}

export function Domains() {
  const { body, fault, again } = useAsk<DomainList>("/api/v1/domains");
  const live = useLive();
  if (fault) return <p class="fault" role="alert">{messageOf(fault)}</p>;
  if (!body) return <p class="empty">Reading…</p>;
  return (
    <>
      <h1 class="lead">Domains of Envoy's rate limit service</h1>
      <p><a href="#/rules">Rules</a> <button onClick={again}>Refresh</button></p>
      {body.domains.length === 0 && <p class="empty">There are no domains. They are read from the files of <code>--envoy-config</code>, or from a control plane.</p>}
      {body.domains.map((domain) => (
        <section key={domain.name}>
          <h2>{domain.name} <span class="faint">{domain.from}</span></h2>
          <table>
            <thead><tr><th>limit</th><th>what</th><th class="hide-narrow">counts</th><th class="n">asked</th><th class="n">denied</th></tr></thead>
            <tbody>{domain.limits.map((limit) => <Limit key={limit.id} limit={limit} activity={live.rules.get(limit.rule)} now={live.now} />)}</tbody>
          </table>
        </section>
      ))}
    </>
  );
}

function Limit({ limit, activity, now }: { limit: DomainLimit; activity?: RuleActivity; now: number }) {
  const admitted = activity?.admitted.sum(60, now) ?? 0;
  const denied = (activity?.denied.sum(60, now) ?? 0) + (activity?.shadow.sum(60, now) ?? 0);
  return (
    <tr>
      <td class="mono"><a href={address("denials", { rule: limit.rule })} title="shows the last denials by this limit">{limit.id}</a></td>
      <td>{what(limit)}{limit.shadow && <span class="shadow"> in shadow</span>}{limit.quota && <span class="faint"> quota</span>}</td>
      <td class="hide-narrow">{limit.accounting === "reference" ? "all requests" : "admitted ones"}</td>
      <td class="n" title="in the last minute, this process">{integer(admitted + denied)}</td>
      <td class={denied && !limit.shadow ? "n denied" : denied ? "n shadow" : "n"}>{share(denied, admitted + denied)}</td>
    </tr>
  );
}

function what(limit: DomainLimit): string {
  if (limit.unlimited) return "unlimited";
  const unit = limit.calendar ? `calendar ${limit.unit} (${limit.timeZone ?? "UTC"})` : limit.unit;
  const by = limit.algorithm && limit.algorithm !== "FIXED_WINDOW" ? `, ${limit.algorithm.toLowerCase().replaceAll("_", " ")}` : "";
  return `${integer(limit.requests)} per ${unit}${by}`;
}
