// One stream for all tabs of the browser: each is a port of this worker.

import type { Message } from "./live";
import { follow } from "./stream";

const ports = new Set<MessagePort>();
let state: Message = { kind: "state", data: "connecting" };
let stop: (() => void) | undefined;

function tell(m: Message) {
  if (m.kind === "state") state = m;
  for (const port of ports) port.postMessage(m);
}

(self as unknown as { onconnect: (event: MessageEvent) => void }).onconnect = (event) => {
  const port = event.ports[0];
  if (!port) return;
  ports.add(port);
  port.postMessage(state);
  port.onmessage = (m: MessageEvent<string>) => {
    if (m.data === "leave") ports.delete(port);
    if (ports.size === 0) {
      stop?.();
      stop = undefined;
    }
  };
  stop ??= follow("/api/v1/events", tell);
};
