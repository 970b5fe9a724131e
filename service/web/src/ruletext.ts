// Rules as YAML that people wrote: read, and changed in one place without touching the rest. It is loaded by the
// pages that edit rules.

import { isMap, isScalar, isSeq, parseDocument, Scalar, YAMLSeq } from "yaml";
import type { Document } from "yaml";
import type { Rule } from "./api";

export type Path = (string | number)[];

const words = /^(true|false|null|yes|no|on|off|y|n|~)$/i;

/** A RuleText is the text of one rule, or why it can't be read. */
export class RuleText {
  private readonly document: Document.Parsed;
  readonly fault?: string;
  constructor(text: string) {
    this.document = parseDocument(text, { prettyErrors: false });
    this.fault = this.document.errors[0]?.message;
    if (!this.fault && !isMap(this.document.contents)) this.fault = "it is no mapping";
  }

  /** at is the value at a path as JavaScript has it, undefined if there is none. */
  at(path: Path): unknown {
    const node = this.document.getIn(path, true);
    return isScalar(node) ? node.value : isMap(node) || isSeq(node) ? (node.toJS(this.document) as unknown) : undefined;
  }

  /** names are the members of the mapping at a path. */
  names(path: Path): string[] {
    const node = path.length ? this.document.getIn(path, true) : this.document.contents;
    return isMap(node) ? node.items.map((pair) => String(isScalar(pair.key) ? pair.key.value : pair.key)) : [];
  }

  private scalar(value: unknown) {
    const node = new Scalar(value);
    if (typeof value === "string" && words.test(value)) node.type = "QUOTE_DOUBLE"; // some readers take them for something else
    return node;
  }

  /** set is the text with another value at a path: none for undefined and what is empty. What stays as it was keeps its comments and quotes. */
  set(path: Path, value: unknown): string {
    const old = this.document.getIn(path, true);
    if (value === undefined || (Array.isArray(value) && value.length === 0) || (typeof value === "object" && value !== null && Object.keys(value).length === 0)) {
      this.remove(path);
    } else if (Array.isArray(value) && value.every((v) => typeof v !== "object")) {
      const list = new YAMLSeq();
      list.flow = !isSeq(old) || old.flow;
      list.items = value.map((v) => (isSeq(old) ? old.items.find((item) => isScalar(item) && item.value === v) : undefined) ?? this.scalar(v));
      if (isSeq(old)) list.comment = old.comment;
      this.document.setIn(path, list);
    } else if (typeof value === "object") {
      this.document.setIn(path, this.document.createNode(value));
    } else if (isScalar(old)) {
      old.value = value;
      if (typeof value === "string" && words.test(value)) old.type = "QUOTE_DOUBLE";
    } else {
      this.document.setIn(path, this.scalar(value));
    }
    return this.text();
  }

  /** rename gives a member of the mapping at a path another name and value, in its place. */
  rename(path: Path, from: string, to: string, value: unknown) {
    const node = this.document.getIn(path, true);
    const pair = isMap(node) ? node.items.find((p) => isScalar(p.key) && p.key.value === from) : undefined;
    if (!pair) return void this.set([...path, to], value);
    pair.key = new Scalar(to);
    pair.value = this.scalar(value);
  }

  /** remove takes away what is at a path, and a mapping that is empty then. */
  private remove(path: Path) {
    if (path.length === 0 || !this.document.hasIn(path)) return;
    this.document.deleteIn(path);
    const parent = path.slice(0, -1);
    const left = parent.length ? this.document.getIn(parent, true) : undefined;
    if ((isMap(left) || isSeq(left)) && left.items.length === 0) this.remove(parent);
  }

  text(): string {
    return this.document.toString({ lineWidth: 0, flowCollectionPadding: false });
  }
}

/** listOf reads the rules of a document: a list, or a mapping with the member rules. */
export function listOf(text: string): Rule[] {
  const read: unknown = parseDocument(text, { prettyErrors: false }).toJS();
  const list: unknown = Array.isArray(read) ? read : (read as { rules?: unknown } | null)?.rules;
  return Array.isArray(list) ? (list as Rule[]).filter((rule) => typeof rule === "object" && typeof rule.id === "string") : [];
}
