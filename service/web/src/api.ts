// What the admin API answers, and how it is asked.

/** A ScopePart is what a rule counts by; of addresses perhaps networks of so many bits. */
export type ScopePart = string | { per_ip: { ipv4?: number; ipv6?: number } };

/** scopeName is the name of a part of a scope. */
export const scopeName = (part: ScopePart) => (typeof part === "object" ? "per_ip" : part);

export interface Series {
  from: number; // Unix seconds
  step: number; // seconds
  admitted: number[];
  denied: number[];
  shadowDenied: number[];
}
export interface Totals extends Series {
  degraded: number[];
  storeMicros: number[];
}
export interface RuleSeries {
  rule: string;
  seconds: Series;
  near?: number[]; // of each of the seconds
  minutes?: Series;
}
export interface Rates {
  scope: string;
  processes: number;
  admitted: number;
  denied: number;
  degraded: number;
}
export interface Store {
  state: string;
  since?: number;
  unreachableShards?: number;
  figures?: StoreFigures;
}
export interface StoreFigures {
  scope: string; // of bytes and evictions
  usedBytes: number;
  maxBytes: number;
  evictions: number;
  calls: number;
  operations: number;
  denialHits: number;
}
export interface Change {
  seq: number;
  at: number;
  kind: string;
  state: string;
  shard?: number;
  detail?: string;
}
export interface TopItem {
  rule: string;
  client: string;
  count: number;
  error: number;
}
export interface Counts {
  admitted: number;
  denied: number;
  shadowDenied: number;
  degraded: number;
}
export interface RuleCounts extends Counts {
  rule: string;
  near: number;
  deniedClients: number; // at least
}
export interface Top {
  scope: string;
  processes: number;
  from: number;
  at: number;
  total: Counts;
  series: Series & { degraded: number[] }; // of the last hour
  rules: RuleCounts[]; // those that denied most first
  clients: TopItem[];
  denied: TopItem[];
  shadowDenied: TopItem[];
}
export interface Denial {
  process: string;
  seq: number; // of the last
  first: number; // Unix microseconds
  at: number; // of the last
  count: number;
  rule?: string;
  client?: string;
  // of the last request:
  class?: string; // if the rule has classes
  reason?: string;
  limit?: number; // permits of the limit that denied
  limitName?: string;
  algorithm?: string;
  method?: string;
  path?: string; // without its query
  requestId?: string;
  attributes?: Record<string, string>; // that rules name
  shadow?: boolean; // a rule in shadow would have denied
}
export interface Denials {
  scope: string;
  processes: number;
  silent?: string[]; // those that did not answer
  unasked?: boolean; // the Redis by which they are asked does not answer
  kept: number; // how many pairs of rule and client were searched
  from: number; // of what was denied later none is missing
  denials: Denial[];
  more: boolean;
  next?: number; // the number of the last one, if there are older ones
}
export interface Stats {
  scope: string;
  process: string;
  at: number;
  totals: Totals;
  rules: RuleSeries[];
  others: RuleSeries;
  store: Store;
  changes: Change[];
  all: Rates;
}
export interface ProcessStatus {
  name: string;
  host: string;
  version: string;
  startedAt: number;
  api?: string;
  self: boolean;
  at: number;
  revision: string;
  store: Store;
  rates: Rates;
}
export interface Processes {
  scope: string;
  processes: ProcessStatus[];
}
export interface Decision {
  at: number;
  rule?: string;
  class?: string; // the request's, if the rule has classes
  via?: string; // by what an admitted request was charged
  client?: string;
  outcome: string;
  degraded?: boolean;
  reason?: string;
  permits: number;
  method?: string;
  path?: string;
}
export interface Timeline {
  scope: string;
  client: string;
  sampled: boolean;
  sample: { from: number; oneIn: number };
  decisions: Decision[];
}
export interface Limit {
  algorithm: string;
  name?: string;
  [member: string]: unknown;
}
export interface Rule {
  id: string;
  name?: string;
  set?: string;
  enabled?: boolean;
  priority?: number;
  labels?: Record<string, string>;
  match?: Record<string, unknown>;
  scope?: ScopePart | ScopePart[];
  limits?: Limit[];
  unlimited?: boolean;
  banned?: boolean;
  on_exceed?: string;
  overrides?: { key: string; limits?: Limit[]; unlimited?: boolean; banned?: boolean; until?: string }[];
  [member: string]: unknown;
}
export interface RuleList {
  revision: number;
  at?: string;
  rules: Rule[];
  next?: string;
}
export interface RuleRevision {
  revision: number;
  at: string;
  by?: string;
  action?: string;
  comment?: string;
  rules: number;
  bytes: number;
}
export interface RuleStatistics {
  revision: number;
  total: number;
  enabled: number;
  disabled: number;
  shadow: number; // of those that are enabled
  sets: number;
  lastChange?: { at: string; by?: string };
}
export interface RuleRevisionDiff extends RuleRevision {
  since: number;
  changes: { id: string; before?: Rule; after?: Rule }[];
}
export interface Fault {
  line: number;
  column: number;
  rule?: string;
  detail: string;
}
export interface Suggestion {
  candidate: string;
  rule: string;
  goal: number;
  limits: string[];
  values: number[];
  clients: number;
  tooClose: number;
  beyondRange: number;
  untouched: number;
  untouchedBelow: number[];
  curves?: { value: number; untouched: number }[][];
  maximum: boolean;
  restClients: number;
  restUntouched: number;
}
export interface Validation {
  valid: boolean;
  faults?: Fault[];
  warnings?: string[];
  added?: string[];
  removed?: string[];
  changed?: string[];
}
export interface LimitState {
  name?: string;
  via?: string;
  rule?: string;
  keep?: number;
  algorithm: string;
  allowed: boolean;
  limit: number;
  remaining: number;
  resetAfterMicros: number;
  retryAfterMicros: number;
}
export interface Explanation {
  path: string;
  allowed: boolean;
  degraded?: boolean;
  rule?: string;
  why: string;
  reason?: string;
  retryAfterSeconds: number;
  rules: { rule: string; outcome: string; by?: string; class?: string; onExceed: string; allowed: boolean; key?: string; cost?: number; available?: number; limits?: LimitState[] }[];
}
export interface Session {
  required: boolean; // whether a token is needed
  name?: string; // of who is signed in
  writes: boolean;
  rules?: { from: string; editable: boolean; forgotten: boolean }; // where rules come from, and what becomes of edits
}

/** A Problem is an answer that says why something was not done (RFC 9457). */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly detail: string,
    readonly etag?: string,
  ) {
    super(detail);
  }
}

export interface Answer<T> {
  body: T;
  etag?: string;
}

type Options = { method?: string; body?: unknown; form?: FormData; text?: string; type?: string; ifMatch?: string; ifNoneMatch?: string; signal?: AbortSignal };

let onSignedOut = () => {};
/** whenSignedOut is told when an answer says that the session is over. */
export function whenSignedOut(then: () => void) {
  onSignedOut = then;
}

/** ask sends one request to the admin API. Its errors are Problems; status 0 is a service that can't be reached. */
export async function ask<T>(path: string, o: Options = {}): Promise<Answer<T>> {
  const headers: Record<string, string> = { Accept: "application/json" };
  let body: string | FormData | undefined = o.form; // which says its own type
  if (o.text !== undefined) {
    body = o.text;
    headers["Content-Type"] = o.type ?? "application/yaml";
  } else if (o.body !== undefined) {
    body = JSON.stringify(o.body);
    headers["Content-Type"] = o.type ?? "application/json";
  }
  if (o.ifMatch) headers["If-Match"] = o.ifMatch;
  if (o.ifNoneMatch) headers["If-None-Match"] = o.ifNoneMatch;
  let response: Response;
  try {
    response = await fetch(path, { method: o.method ?? "GET", headers, body, credentials: "same-origin", cache: "no-store", signal: o.signal });
  } catch {
    throw new Problem(0, "The service can't be reached.");
  }
  const etag = response.headers.get("ETag") ?? undefined;
  const text = await response.text();
  if (!response.ok) {
    let detail = `${response.status} ${response.statusText}`;
    try {
      detail = (JSON.parse(text) as { detail?: string }).detail ?? detail;
    } catch {
      // the status says it
    }
    if (response.status === 401) onSignedOut();
    throw new Problem(response.status, detail, etag);
  }
  return { body: (text ? JSON.parse(text) : undefined) as T, etag };
}
