// The stream of events of the admin API. EventSource connects again by itself after a break, and tells the
// service the last event that it had.

import type { Message } from "./live";

export function follow(url: string, tell: (m: Message) => void): () => void {
  let source: EventSource | undefined;
  let again: ReturnType<typeof setTimeout> | undefined;
  const open = () => {
    source = new EventSource(url, { withCredentials: true });
    source.onopen = () => tell({ kind: "state", data: "live" });
    source.onerror = () => {
      const refused = source?.readyState === EventSource.CLOSED; // an answer that is no stream ends it
      tell({ kind: "state", data: refused ? "refused" : "lost" });
      if (refused) again = setTimeout(open, 5000);
    };
    for (const kind of ["snapshot", "second", "shared"] as const) {
      source.addEventListener(kind, (event) => tell({ kind, data: JSON.parse((event as MessageEvent<string>).data) as unknown }));
    }
  };
  open();
  return () => {
    source?.close();
    if (again) clearTimeout(again);
  };
}
