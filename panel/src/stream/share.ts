/** Tabs of one browser share a line: the one that holds the lock is the leader, reads the server, and passes on what it got.
 * When it goes, the next holder of the lock goes on from its own cursor. */

import type { LineState } from "./connection";
import { usable } from "./locks";
import type { SseEvent } from "./sse";

export interface Shared {
  /** The id of the last event that is in `save()`. */
  cursor(): string | undefined;
  receive(events: readonly SseEvent[]): void;
  tell(state: LineState): void;
  /** All that was received, for a tab that came later. */
  save(): string;
  restore(saved: string): void;
}

type Note =
  | { kind: "hello" }
  | { kind: "wake" }
  | { kind: "events"; after: string | undefined; events: readonly SseEvent[] }
  | { kind: "state"; cursor: string | undefined; line: LineState; saved: string }
  | { kind: "line"; line: LineState };

export interface Channel {
  postMessage(note: unknown): void;
  close(): void;
  onmessage: ((event: MessageEvent) => void) | null;
}

export interface ShareOptions {
  name: string;
  shared: Shared;
  /** Reads the server until the signal aborts; called while this tab leads. */
  lead(shared: Shared, signal: AbortSignal): Promise<void>;
  signal: AbortSignal;
  locks?: LockManager | undefined;
  channel?: (name: string) => Channel;
  wake?: () => void;
  /** `ask`: whichever tab leads is to wake. */
  nudge?: EventTarget;
}

/** Returns when the signal aborts. */
export async function share(options: ShareOptions): Promise<void> {
  const locks = options.locks ?? (await usable());
  if (!locks) return options.lead(options.shared, options.signal);
  const tab = new Tab(options, (options.channel ?? ((name) => new BroadcastChannel(name)))(options.name));
  try {
    await locks.request(options.name, { signal: options.signal }, () => tab.lead());
  } catch (error) {
    if (!options.signal.aborted) throw error;
  } finally {
    tab.close();
  }
}

class Tab {
  private leading = false;
  private line: LineState = "connecting";
  /** Events are of use to a follower only once it holds what came before them. */
  private joined = false;

  constructor(
    private readonly options: ShareOptions,
    private readonly channel: Channel,
  ) {
    channel.onmessage = (event: MessageEvent) => this.hear(event.data as Note);
    options.nudge?.addEventListener("ask", this.ask);
    this.post({ kind: "hello" });
  }

  async lead(): Promise<void> {
    this.leading = true;
    await this.options.lead(this.passingOn(), this.options.signal);
    await aborted(this.options.signal);
  }

  close(): void {
    this.options.nudge?.removeEventListener("ask", this.ask);
    this.channel.close();
  }

  private readonly ask = (): void => this.post({ kind: "wake" });

  private passingOn(): Shared {
    const { shared } = this.options;
    return {
      cursor: () => shared.cursor(),
      save: () => shared.save(),
      restore: (saved) => shared.restore(saved),
      receive: (events) => {
        const after = shared.cursor();
        shared.receive(events);
        this.post({ kind: "events", after, events });
      },
      tell: (line) => {
        const first = this.line === "connecting";
        this.line = line;
        shared.tell(line);
        this.post(first ? this.state() : { kind: "line", line });
      },
    };
  }

  private hear(note: Note): void {
    if (note.kind === "hello") {
      if (this.leading) this.post(this.state());
    } else if (note.kind === "wake") {
      if (this.leading) this.options.wake?.();
    } else if (!this.leading) {
      this.follow(note);
    }
  }

  private follow(note: Exclude<Note, { kind: "hello" } | { kind: "wake" }>): void {
    const { shared } = this.options;
    if (note.kind === "line") {
      shared.tell(note.line);
    } else if (note.kind === "state") {
      if (!this.joined || note.cursor !== shared.cursor()) shared.restore(note.saved);
      this.joined = true;
      shared.tell(note.line);
    } else if (this.joined && note.after === shared.cursor()) {
      shared.receive(note.events);
    } else {
      this.post({ kind: "hello" });
    }
  }

  private state(): Note {
    const { shared } = this.options;
    return { kind: "state", cursor: shared.cursor(), line: this.line, saved: shared.save() };
  }

  private post(note: Note): void {
    this.channel.postMessage(note);
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
