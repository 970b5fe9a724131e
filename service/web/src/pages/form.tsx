// A rule as a form: another view of the text in the editor. What it can't show stays as it is in the text.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { scopeName } from "../api";
import type { Fault, ScopePart } from "../api";
import { RuleText } from "../ruletext";
import type { Path } from "../ruletext";

const shown = new Set(["id", "name", "set", "enabled", "priority", "labels", "match", "scope", "missing", "limits", "unlimited", "banned", "on_exceed", "max_wait", "max_waiters"]);
const shownMatch = new Set(["methods", "path", "paths", "host", "hosts", "except", "headers"]);
const shownLimit = new Set(["algorithm", "name", "capacity", "refill", "leak", "limit", "window", "calendar"]);

const algorithms: Record<string, string> = {
  token_bucket: "token bucket",
  leaky_bucket: "leaky bucket",
  fixed_window: "fixed window",
  sliding_window_log: "sliding window log",
  sliding_window_counter: "sliding window counter",
};
const bucket = (algorithm: string) => algorithm.endsWith("bucket");

const lines = (text: string) => text.split("\n").map((l) => l.trim()).filter(Boolean);
const tokens = (text: string) => text.split(/[\s,]+/).filter(Boolean);
const pairs = (text: string) =>
  Object.fromEntries(lines(text).map((line) => {
    const [name = "", ...rest] = line.split(":");
    return [name.trim(), rest.join(":").trim()];
  }));
const numeral = (text: string) => (/^\d+$/.test(text.trim()) ? Number(text) : text.trim() || undefined);
const textOf = (value: unknown) => (value === undefined || value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value));
const pairsText = (value: unknown) => (typeof value === "object" && value !== null ? Object.entries(value).map(([k, v]) => `${k}: ${textOf(v)}`).join("\n") : textOf(value));
const listText = (value: unknown, by: string) => (Array.isArray(value) ? value.map(textOf).join(by) : textOf(value));

/** Box is a field that keeps what is typed as it is typed, and says what is wrong with it. */
function Box({ label, value, set, fault, rows, size, placeholder }: { label: string; value: string; set: (text: string) => void; fault?: string; rows?: number; size?: number; placeholder?: string }) {
  const [kept, setTyped] = useState<string>();
  const known = useRef(value);
  const mine = useRef(false); // whether the value changes by what is typed here
  const typed = value === known.current || mine.current ? kept : undefined;
  known.current = value;
  useEffect(() => {
    mine.current = false;
    if (typed === undefined && kept !== undefined) setTyped(undefined);
  });
  const common = {
    value: typed ?? value,
    placeholder,
    spellcheck: false,
    "aria-invalid": fault ? true : undefined,
    onInput: (e: { currentTarget: { value: string } }) => {
      mine.current = true;
      setTyped(e.currentTarget.value);
      set(e.currentTarget.value);
    },
    onBlur: () => setTyped(undefined),
  };
  return (
    <label class="field"><span>{label}</span>
      {rows ? <textarea rows={Math.max(rows, (typed ?? value).split("\n").length)} {...common} /> : <input size={size ?? 16} {...common} />}
      {fault && <span class="fault">{fault}</span>}
    </label>
  );
}

function Choose({ label, value, options, set, fault }: { label: string; value: string; options: Record<string, string>; set: (value: string) => void; fault?: string }) {
  return (
    <label class="field"><span>{label}</span>
      <select value={value} aria-invalid={fault ? true : undefined} onChange={(e) => set(e.currentTarget.value)}>
        {!(value in options) && <option value={value}>{value}</option>}
        {Object.entries(options).map(([v, name]) => <option key={v} value={v}>{name}</option>)}
      </select>
      {fault && <span class="fault">{fault}</span>}
    </label>
  );
}

/** aliases are names of the same field. */
const aliases: Record<string, string> = { "match.path": "match.paths", "match.host": "match.hosts", unlimited: "banned" };

/** placesOf are the parameters that have a field, or a group of fields, by their paths. */
function placesOf(rule: RuleText, limits: number, more: string[]): Set<string> {
  const places = new Set(["name", "set", "priority", "labels", "enabled", "on_exceed", "match", "scope", "missing", "banned", "limits", ...more]);
  for (const member of ["methods", "hosts", "paths", "except", "headers"]) places.add("match." + member);
  for (let i = 0; i < limits; i++) {
    const at = `limits[${i}]`;
    const algorithm = textOf(rule.at(["limits", i, "algorithm"])).toLowerCase();
    const pace = rule.at(["limits", i, "calendar"]) !== undefined ? "calendar" : "window";
    const members = bucket(algorithm) ? ["capacity", algorithm === "leaky_bucket" ? "leak" : "refill"] : ["limit", pace];
    if (limits > 1 || rule.at(["limits", i, "name"]) !== undefined) members.push("name");
    for (const place of [at, `${at}.algorithm`, ...members.map((m) => `${at}.${m}`)]) places.add(place);
  }
  return places;
}

/** placeOf is where a fault stands: by the path of the parameter that it begins with, such as limits[0].window, or the next part around it that has a place. */
function placeOf(detail: string, places: Set<string>): string {
  let path = /^[a-z_]+(\[\d+\]|\.[\w-]+)*/.exec(detail)?.[0] ?? "";
  while (path && !places.has(aliases[path] ?? path)) path = path.replace(/(^|\.|\[)[^.[]*$/, "");
  return aliases[path] ?? path;
}

function Group({ title, children }: { title: string; children: ComponentChildren }) {
  return <fieldset><legend>{title}</legend>{children}</fieldset>;
}

export function Form({ text, set, faults, writes, fresh }: { text: string; set: (text: string) => void; faults: Fault[]; writes: boolean; fresh: boolean }) {
  const rule = new RuleText(text);
  if (rule.fault) return <p class="fault">The form can't show this YAML: {rule.fault}. It comes back once that is mended.</p>;
  const at = (...path: Path) => rule.at(path);
  const put = (path: Path, value: unknown) => set(rule.set(path, value));
  const name = (path: Path) => path.map((p, i) => (typeof p === "number" ? `[${p}]` : i ? "." + p : p)).join("");
  const onExceed = textOf(at("on_exceed")) || "reject";
  const limits = rule.at(["limits"]);
  const count = Array.isArray(limits) ? limits.length : 0;
  const places = placesOf(rule, count, [...(fresh ? ["id"] : []), ...(onExceed === "wait" ? ["max_wait", "max_waiters"] : [])]);
  const told = new Map<string, string[]>(); // by the field that they stand beside; "" is none
  for (const { detail } of faults) {
    const text = detail.replace(/^rule "(\\.|[^"\\])*": /, "");
    const place = placeOf(text, places);
    told.set(place, [...(told.get(place) ?? []), text]);
  }
  const faultOf = (...path: Path) => told.get(aliases[name(path)] ?? name(path))?.join("; ");
  const box = (label: string, path: Path, read: (text: string) => unknown = (t) => t.trim() || undefined, more: { rows?: number; size?: number; placeholder?: string } = {}) => (
    <Box label={label} value={textOf(rule.at(path))} set={(t) => put(path, read(t))} fault={faultOf(...path)} {...more} />
  );
  // One path or host has a member of its own.
  const several = (label: string, one: string, many: string, by: string, read: (text: string) => string[], rows?: number) => {
    const member = at("match", one) !== undefined ? one : many;
    const write = (list: string[]) => {
      if (member === one && list.length === 1) return put(["match", one], list[0]);
      if (member === one) rule.rename(["match"], one, many, undefined);
      put(["match", many], list);
    };
    return <Box label={label} rows={rows} size={28} value={listText(at("match", member), by)} set={(t) => write(read(t))} fault={faultOf("match", member)} />;
  };
  const matchList = (label: string, member: string, by: string, read: (text: string) => unknown, rows?: number) => (
    <Box label={label} rows={rows} size={20} value={member === "headers" ? pairsText(at("match", member)) : listText(at("match", member), by)} set={(t) => put(["match", member], read(t))} fault={faultOf("match", member)} />
  );
  const kind = at("banned") === true ? "banned" : at("unlimited") === true ? "unlimited" : "limits";
  const setKind = (to: string) => {
    rule.set(["banned"], to === "banned" ? true : undefined);
    rule.set(["unlimited"], to === "unlimited" ? true : undefined);
    if (to !== "limits") rule.set(["limits"], undefined);
    set(to === "limits" && count === 0 ? rule.set(["limits"], [{ algorithm: "token_bucket", capacity: 100, refill: "10/s" }]) : rule.text());
  };
  const kept = [
    ...rule.names([]).filter((n) => !shown.has(n)),
    ...rule.names(["match"]).filter((n) => !shownMatch.has(n)).map((n) => "match." + n),
    ...Array.from({ length: count }, (_, i) => rule.names(["limits", i]).filter((n) => !shownLimit.has(n)).map((n) => `limits[${i}].${n}`)).flat(),
  ];
  return (
    <form class="rule" aria-label="The rule, as a form" onSubmit={(e) => e.preventDefault()}>
      <fieldset disabled={!writes}>
        {told.get("")?.map((fault) => <p key={fault} class="fault">{fault}</p>)}
        <Group title="Rule">
          <div class="row">
            {fresh && box("ID", ["id"], undefined, { size: 20 })}
            {box("Name", ["name"], undefined, { size: 24 })}
            {box("Set", ["set"])}
            <Box label="Priority" size={6} value={textOf(at("priority"))} set={(t) => put(["priority"], /^-?\d+$/.test(t.trim()) ? Number(t) : t.trim() || undefined)} fault={faultOf("priority")} />
          </div>
          <div class="row">
            <Box label="Labels, name: value" rows={1} value={pairsText(at("labels"))} set={(t) => put(["labels"], pairs(t))} fault={faultOf("labels")} />
            <label class="check"><input type="checkbox" checked={at("enabled") !== false} onChange={(e) => put(["enabled"], e.currentTarget.checked ? undefined : false)} /> enabled{faultOf("enabled") && <span class="fault"> {faultOf("enabled")}</span>}</label>
            <Choose label="A request over the limit" value={onExceed} options={{ reject: "is rejected", wait: "waits", shadow: "is admitted (shadow)", mark: "is admitted and marked" }} set={(v) => put(["on_exceed"], v === "reject" ? undefined : v)} fault={faultOf("on_exceed")} />
            {onExceed === "wait" && box("for at most", ["max_wait"], undefined, { size: 6, placeholder: "2s" })}
            {onExceed === "wait" && box("so many at once", ["max_waiters"], numeral, { size: 6, placeholder: "100" })}
          </div>
        </Group>
        <Group title="Requests that it holds for">
          <div class="row">
            {matchList("Methods", "methods", " ", tokens)}
            {several("Hosts", "host", "hosts", " ", tokens)}
          </div>
          <div class="columns">
            {several("Paths, one a line; none: all", "path", "paths", "\n", lines, 2)}
            {matchList("Except, one a line", "except", "\n", lines, 2)}
            {matchList("Headers, name: value", "headers", "\n", pairs, 2)}
          </div>
          {faultOf("match") && <p class="fault">{faultOf("match")}</p>}
        </Group>
        <Scope rule={rule} put={put} set={set} fault={faultOf("scope")} missing={faultOf("missing")} />
        <Group title="What each client may do">
          <div class="row">
            <Choose label="Clients" value={kind} options={{ limits: "have limits", unlimited: "are unlimited", banned: "are banned" }} set={setKind} fault={faultOf("banned")} />
          </div>
          {Array.from({ length: count }, (_, i) => <LimitRow key={i} i={i} rule={rule} box={box} set={set} fault={faultOf("limits", i, "algorithm")} whole={faultOf("limits", i)} alone={count === 1} />)}
          {faultOf("limits") && <p class="fault">{faultOf("limits")}</p>}
          {kind === "limits" && writes && (
            <button type="button" onClick={() => put(["limits", count], { algorithm: "fixed_window", ...(count > 0 && { name: `limit-${count + 1}` }), limit: 1000, window: "1h" })}>Add a limit</button>
          )}
        </Group>
      </fieldset>
      <p class="faint">{kept.length > 0 ? `Not shown here, and left as it is in the YAML: ${kept.join(", ")}.` : "Everything that the YAML says is shown here."}</p>
    </form>
  );
}

const parts: Record<string, string> = { per_ip: "address", per_user: "user", per_api_key: "API key" };

function Scope({ rule, put, set, fault, missing }: { rule: RuleText; put: (path: Path, value: unknown) => void; set: (text: string) => void; fault?: string; missing?: string }) {
  const now = rule.at(["scope"]);
  const list = (Array.isArray(now) ? now : now === undefined ? [] : [now]) as ScopePart[];
  const names = list.map((s) => textOf(scopeName(s)));
  const custom = names.filter((s) => s.startsWith("custom:")).map((s) => s.slice("custom:".length));
  const write = (next: ScopePart[]) => {
    const scope = next.filter((s) => s !== "global");
    put(["scope"], scope.length > 1 ? scope : (scope[0] ?? "global"));
  };
  const bits = list.map((s) => (typeof s === "object" ? s.per_ip : undefined)).find(Boolean) ?? {};
  const network = (version: "ipv4" | "ipv6", label: string) => (
    <Box label={label} size={4} value={textOf(bits[version])} set={(t) => {
      const of = Object.fromEntries(Object.entries({ ...bits, [version]: numeral(t) }).filter(([, n]) => n !== undefined));
      write(list.map((s) => (scopeName(s) === "per_ip" ? (Object.keys(of).length ? { per_ip: of } : "per_ip") : s)));
    }} />
  );
  return (
    <Group title="Who is one client">
      <div class="row">
        {Object.entries(parts).map(([scope, name]) => (
          <label class="check" key={scope}><input type="checkbox" checked={names.includes(scope)} onChange={(e) => write(e.currentTarget.checked ? [...list, scope] : list.filter((s) => scopeName(s) !== scope))} /> {name}</label>
        ))}
        {names.includes("per_ip") && <>{network("ipv4", "Bits of IPv4")}{network("ipv6", "Bits of IPv6")}</>}
        <Box label="Attributes" size={14} value={custom.join(" ")} set={(t) => write([...list.filter((s) => !textOf(s).startsWith("custom:")), ...tokens(t).map((a) => "custom:" + a)])} />
        <Choose label="A request without it" value={textOf(rule.at(["missing"]))} options={{ "": "–", skip: "is passed over", deny: "is denied", ip: "is counted by address" }} set={(v) => set(rule.set(["missing"], v || undefined))} fault={missing} />
      </div>
      {list.length === 0 || list[0] === "global" ? <p class="faint">None is chosen: all requests count together.</p> : list.length > 1 && <p class="faint">Together they are one client.</p>}
      {fault && <p class="fault">{fault}</p>}
    </Group>
  );
}

type BoxOf = (label: string, path: Path, read?: (text: string) => unknown, more?: { rows?: number; size?: number; placeholder?: string }) => ComponentChildren;

function LimitRow({ i, rule, box, set, fault, whole, alone }: { i: number; rule: RuleText; box: BoxOf; set: (text: string) => void; fault?: string; whole?: string; alone: boolean }) {
  const algorithm = textOf(rule.at(["limits", i, "algorithm"])).toLowerCase();
  const path: Path = ["limits", i];
  const choose = (to: string) => {
    const was = bucket(algorithm);
    const speed = algorithm === "leaky_bucket" ? "leak" : "refill";
    const next = to === "leaky_bucket" ? "leak" : "refill";
    const window = textOf(rule.at([...path, "window"])) || "1m";
    rule.set([...path, "algorithm"], to);
    if (to !== "fixed_window") rule.set([...path, "start"], undefined);
    if (bucket(to) && was && speed !== next) rule.rename(path, speed, next, rule.at([...path, speed]));
    if (bucket(to) && !was) {
      const most = rule.at([...path, "limit"]);
      rule.rename(path, "limit", "capacity", most);
      rule.set([...path, "calendar"], undefined);
      rule.rename(path, "window", next, `${textOf(most)}/${window}`);
    }
    if (!bucket(to) && was) {
      rule.rename(path, "capacity", "limit", rule.at([...path, "capacity"]));
      rule.rename(path, speed, "window", window);
    }
    if (!bucket(to) && to !== "fixed_window" && rule.at([...path, "calendar"]) !== undefined) rule.rename(path, "calendar", "window", "1m");
    set(rule.text());
  };
  const calendar = rule.at([...path, "calendar"]) !== undefined;
  return (
    <div class="row">
      <Choose label="Algorithm" value={algorithm} options={algorithms} set={choose} fault={fault} />
      {bucket(algorithm) ? (
        <>
          {box("At once", [...path, "capacity"], numeral, { size: 7 })}
          {algorithm === "leaky_bucket" ? box("Leaks", [...path, "leak"], undefined, { size: 7 }) : box("Refills", [...path, "refill"], undefined, { size: 7 })}
        </>
      ) : (
        <>
          {box("At most", [...path, "limit"], numeral, { size: 7 })}
          {calendar ? box("per calendar", [...path, "calendar"], undefined, { size: 7 }) : box("per", [...path, "window"], undefined, { size: 7 })}
        </>
      )}
      {(!alone || rule.at([...path, "name"]) !== undefined) && box("Name", [...path, "name"], undefined, { size: 10 })}
      {!alone && <button type="button" class="plain" onClick={() => set(rule.set(path, undefined))}>remove</button>}
      {whole && <span class="fault">{whole}</span>}
    </div>
  );
}
