/** One response of server-sent events, read to its end. */

import { createParser } from "eventsource-parser";

export interface SseEvent {
  event: string;
  data: string;
  id: string | undefined;
}

export interface SseReader {
  /** The events of one piece of the response, in order. */
  onEvents(events: readonly SseEvent[]): void;
  /** The server's `retry` hint. It gives one at the start; a second one says that it cuts the line on purpose. */
  onHint(): void;
  /** Anything came, be it a ping. */
  onBytes(): void;
}

/** Longer than any heartbeat a server can be set to. */
export const IDLE_MS = 65_000;

export class StreamIdle extends Error {}

/** Returns at a clean end. Throws what the network throws, the signal's reason, and StreamIdle when nothing came for long. */
export async function readEvents(response: Response, reader: SseReader, signal: AbortSignal): Promise<void> {
  if (!response.body) return;
  const body = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let batch: SseEvent[] = [];
  const parser = createParser({
    onEvent: ({ event = "message", data, id }) => batch.push({ event, data, id }),
    onRetry: () => reader.onHint(),
  });
  try {
    while (true) {
      const { done, value } = await withinLimits(body.read(), signal);
      if (done) return;
      reader.onBytes();
      parser.feed(value);
      if (batch.length > 0) reader.onEvents(batch);
      batch = [];
    }
  } finally {
    void body.cancel().catch(() => undefined);
  }
}

function withinLimits<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason);
    const timer = setTimeout(() => reject(new StreamIdle(`Nothing came for ${IDLE_MS} ms.`)), IDLE_MS);
    signal.addEventListener("abort", stop);
    if (signal.aborted) stop();
    work.then(resolve, reject).finally(() => {
      clearTimeout(timer);
      signal.removeEventListener("abort", stop);
    });
  });
}
