// How figures and times are written. Times are UTC, as in logs, with 24 hours; a page says so once.

const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const compactForm = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const utc = { timeZone: "UTC", hourCycle: "h23" } as const;
const clock = new Intl.DateTimeFormat(undefined, { ...utc, hour: "2-digit", minute: "2-digit", second: "2-digit" });
const full = new Intl.DateTimeFormat(undefined, { ...utc, dateStyle: "medium", timeStyle: "medium" });
const local = new Intl.DateTimeFormat(undefined, { hourCycle: "h23", hour: "2-digit", minute: "2-digit", timeZoneName: "short" });
const minute = new Intl.DateTimeFormat(undefined, { ...utc, hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { timeZone: "UTC", month: "short", day: "numeric" });
const tenths = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });

export const integer = (n: number) => whole.format(n);
export const compact = (n: number) => (Math.abs(n) < 10_000 ? whole.format(n) : compactForm.format(n));

/** amount is a number that may be a fraction, of which one digit is shown. */
export const amount = (n: number) => (n < 10_000 ? tenths.format(n) : compact(n));

/** rate is a number per second. */
export function rate(n: number): string {
  if (n === 0) return "0/s";
  return (n < 10 ? n.toFixed(1) : compact(n)) + "/s";
}

/** share is a part of a whole in percent; "–" of nothing. */
export function share(part: number, all: number): string {
  if (all === 0) return "–";
  const percent = (100 * part) / all;
  return (percent === 0 || percent >= 10 ? percent.toFixed(0) : percent < 0.1 ? "<0.1" : percent.toFixed(1)) + " %";
}

/** duration writes microseconds in the largest unit that fits. */
export function duration(micros: number): string {
  if (micros < 0) return "never";
  const units: [number, string][] = [
    [86_400_000_000, "d"],
    [3_600_000_000, "h"],
    [60_000_000, "min"],
    [1_000_000, "s"],
    [1_000, "ms"],
  ];
  for (const [size, unit] of units) {
    if (micros >= size) {
      const n = micros / size;
      return (n >= 10 || Number.isInteger(n) ? n.toFixed(0) : n.toFixed(1)) + " " + unit;
    }
  }
  return micros.toFixed(0) + " µs";
}

const unitSeconds: Record<string, number> = { us: 1e-6, ms: 1e-3, s: 1, m: 60, h: 3600, d: 86_400 };

/** secondsOf reads a duration of a rule, such as 90s, 1d12h or, in a rate, h. */
const secondsOf = (text: string) => [...text.matchAll(/([\d.]*)(us|ms|[smhd])/g)].reduce((sum, [, n, unit]) => sum + Number(n || 1) * (unitSeconds[unit ?? ""] ?? 0), 0);

/** spanOf is in how many seconds a limit renews itself: its window, or how long a bucket takes to fill or drain. */
export function spanOf(limit: Record<string, unknown>): number {
  if (limit.window !== undefined) return secondsOf(String(limit.window));
  if (limit.calendar !== undefined) return { minute: 60, hour: 3600, day: 86_400, week: 7 * 86_400, month: 31 * 86_400, year: 366 * 86_400 }[String(limit.calendar)] ?? 0;
  const [amount, period = ""] = String(limit.rate ?? limit.refill ?? limit.leak).split("/", 2);
  return (Number(limit.capacity ?? limit.burst ?? 0) * secondsOf(period)) / Number(amount);
}

/** bytes is an amount of memory. */
export function bytes(n: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) {
    n /= 1024;
    i++;
  }
  return (n < 10 && i > 0 ? n.toFixed(1) : n.toFixed(0)) + " " + units[i];
}

export const minuteOf = (seconds: number) => minute.format(seconds * 1000);
export const secondOf = (seconds: number) => clock.format(seconds * 1000);

/** timeOfDay has the day too, if it is long ago. */
export function timeOfDay(micros: number): string {
  const at = micros / 1000;
  return (Math.abs(Date.now() - at) > 43_200_000 ? day.format(at) + ", " : "") + clock.format(at);
}

/** elapsed is a time since a start: "1:05", "2:00:00", and "1:05.25" if it is no whole second. */
export function elapsed(seconds: number): string {
  const two = (n: number) => String(Math.floor(n)).padStart(2, "0");
  const part = Math.round((seconds % 1) * 1000) / 1000;
  return (seconds >= 3600 ? `${Math.floor(seconds / 3600)}:${two((seconds % 3600) / 60)}` : String(Math.floor(seconds / 60))) + ":" + two(seconds % 60) + (part > 0 && part < 1 ? String(part).slice(1) : "");
}

/** fullTime has the day, and what the viewer's clock says. */
export const fullTime = (micros: number) => `${full.format(micros / 1000)} UTC, ${local.format(micros / 1000)}`;

/** timeOf reads a time as people write it, in microseconds: a span such as 15m before now or, with the sign 1, after it; a time of day, the last or the next one; or a day with a time. It is undefined if the text is none. */
export function timeOf(text: string, now: number, sign: 1 | -1): number | undefined {
  text = text.trim();
  if (/^(\d+(\.\d+)?[smhd])+$/.test(text)) return now + sign * secondsOf(text) * 1e6;
  const clockTime = /^([01]?\d|2[0-3]):[0-5]\d(:[0-5]\d)?$/.test(text);
  const today = new Date(now / 1000).toISOString().slice(0, 11);
  const full = clockTime ? today + text.padStart(text.length + (text.indexOf(":") === 1 ? 1 : 0), "0") + "Z" : text.replace(/^(\d{4}-\d\d-\d\d)[ T]/, "$1T").replace(/Z?$/, "Z");
  const at = /^\d{4}-\d\d-\d\dT\d\d:\d\d/.test(full) ? Date.parse(full) * 1000 : NaN;
  if (Number.isNaN(at)) return undefined;
  return clockTime && (at - now) * sign < 0 ? at + sign * 86_400e6 : at;
}

const units: Record<string, string> = { s: "second", m: "minute", min: "minute", h: "hour", d: "day", "1s": "second", "1m": "minute", "1h": "hour", "1d": "day" };

/** limitText writes a limit as people say it: "100 per minute", "5 per second (40 at once)". */
export function limitText(limit: Record<string, unknown>): string {
  const count = limit.capacity ?? limit.limit ?? limit.burst;
  const pace = limit.rate ?? limit.refill ?? limit.leak;
  const parts: string[] = [];
  if (limit.window !== undefined) parts.push(`${count} per ${units[String(limit.window)] ?? String(limit.window)}`);
  else if (limit.calendar !== undefined) parts.push(`${count} per calendar ${String(limit.calendar)}`);
  else if (pace !== undefined) {
    const [amount, unit = ""] = String(pace).split("/", 2);
    parts.push(`${amount} per ${units[unit] ?? unit}` + (count === undefined ? "" : ` (${count} at once)`));
  } else parts.push(String(count ?? ""));
  if (limit.start !== undefined) parts.push("from the first request");
  if (limit.min_interval !== undefined) parts.push(`${String(limit.min_interval)} apart`);
  return parts.join(", ");
}
