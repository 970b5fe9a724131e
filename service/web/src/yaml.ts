// Rules as YAML, for people to edit. The service reads and checks it; this only writes it.

const plain = /^[A-Za-z_/][\w ./{}*-]*$|^\d+(ms|[smhd])$|^\d+\/\d*[a-z]+$/;
const words = new Set(["true", "false", "null", "yes", "no", "on", "off", "y", "n", "~"]);

function scalar(value: unknown): string {
  if (typeof value !== "string") return JSON.stringify(value);
  const text = value;
  return plain.test(text) && !words.has(text.toLowerCase()) && !/[ ]$|: |\{/.test(text) ? text : JSON.stringify(text);
}

function flow(value: unknown): string | undefined {
  if (Array.isArray(value)) {
    if (value.some((v) => typeof v === "object" && v !== null)) return value.length ? undefined : "[]";
    return `[${value.map((v) => (typeof v === "string" && /[,\]\[{}]/.test(v) ? JSON.stringify(v) : scalar(v))).join(", ")}]`;
  }
  if (typeof value === "object" && value !== null) return Object.keys(value).length ? undefined : "{}";
  return scalar(value);
}

function lines(value: unknown, indent: string): string[] {
  if (Array.isArray(value)) {
    return value.flatMap((item) => {
      const one = flow(item);
      if (one !== undefined) return [`${indent}- ${one}`];
      const inner = lines(item, indent + "  ");
      return [`${indent}- ${(inner[0] ?? "").trimStart()}`, ...inner.slice(1)];
    });
  }
  return Object.entries(value as Record<string, unknown>).flatMap(([name, item]) => {
    const one = flow(item);
    const key = scalar(name);
    return one !== undefined ? [`${indent}${key}: ${one}`] : [`${indent}${key}:`, ...lines(item, indent + "  ")];
  });
}

/** yaml writes a value as YAML. */
export const yaml = (value: unknown): string => flow(value) ?? lines(value, "").join("\n") + "\n";

/** diff are the lines of two texts: what only the first has, what only the second has, and what both have. */
export function diff(before: string, after: string): { kind: " " | "-" | "+"; line: string }[] {
  const a = before ? before.replace(/\n$/, "").split("\n") : [];
  const b = after ? after.replace(/\n$/, "").split("\n") : [];
  const common: number[][] = Array.from({ length: a.length + 1 }, () => new Array<number>(b.length + 1).fill(0));
  const cell = (i: number, j: number) => common[i]?.[j] ?? 0;
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i]![j] = a[i] === b[j] ? cell(i + 1, j + 1) + 1 : Math.max(cell(i + 1, j), cell(i, j + 1));
    }
  }
  const out: { kind: " " | "-" | "+"; line: string }[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      out.push({ kind: " ", line: a[i] ?? "" });
      i++;
      j++;
    } else if (j >= b.length || (i < a.length && cell(i + 1, j) >= cell(i, j + 1))) {
      out.push({ kind: "-", line: a[i++] ?? "" });
    } else {
      out.push({ kind: "+", line: b[j++] ?? "" });
    }
  }
  return out;
}
