/** What one conversation's stream told so far: the fold of its frames, and how the line is. */

import { request } from "../api/client";
import { SCOPE } from "../app/base";
import { EMPTY, type Fold, fold } from "../fold/fold";
import { type Frame, parseFrame } from "../fold/frames";
import { restore, save } from "../fold/saved";
import { keepConnected, type LineState } from "../stream/connection";
import { nudge, wake } from "../stream/nudge";
import { Places } from "../stream/places";
import { type Shared, share } from "../stream/share";
import type { SseEvent } from "../stream/sse";
import { Pace } from "./pace";

export interface FeedState {
  readonly fold: Fold;
  readonly line: LineState;
  /** Grows when the stored transcript must be read again: it has what the fold does not. */
  readonly revision: number;
}

const places = new Places(SCOPE);

export class Feed implements Shared {
  private state: FeedState = { fold: EMPTY, line: "connecting", revision: 0 };
  private pending: Frame[] = [];
  private lastId: string | undefined;
  private readonly pace = new Pace(() => this.flush());
  private readonly listeners = new Set<() => void>();

  constructor(readonly conversation: string) {}

  /** Until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    await share({
      name: `${SCOPE}:conversation:${this.conversation}`,
      shared: this,
      lead: (owner, leading) =>
        keepConnected({
          owner,
          signal: leading,
          nudge,
          place: places.hold,
          open: (after, end) => this.open(after, end),
        }),
      signal,
      wake,
      nudge,
    });
  }

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  snapshot = (): FeedState => this.state;

  cursor(): string | undefined {
    return this.lastId;
  }

  receive(events: readonly SseEvent[]): void {
    for (const { event, data, id } of events) {
      const frame = parseFrame(event, data);
      if (frame) this.pending.push(frame);
      if (id !== undefined) this.lastId = id;
    }
    this.pace.ask();
  }

  tell(line: LineState): void {
    if (line === this.state.line) return;
    const opened = line === "catching-up" && this.lastId === undefined;
    this.flush();
    this.set({ ...this.state, line, revision: this.state.revision + (opened ? 1 : 0) });
  }

  save(): string {
    this.flush();
    return JSON.stringify({ id: this.lastId ?? null, fold: save(this.state.fold) });
  }

  restore(saved: string): void {
    const { id, fold: text } = JSON.parse(saved) as { id: string | null; fold: string };
    this.pending = [];
    this.lastId = id ?? undefined;
    this.set({ ...this.state, fold: restore(text), revision: this.state.revision + 1 });
  }

  private open(after: string | undefined, signal: AbortSignal): Promise<Response> {
    const headers = after === undefined ? {} : { "Last-Event-ID": after };
    const query = `conversation=${encodeURIComponent(this.conversation)}&follow=1`;
    return request(`api/chat?${query}`, { headers, signal, cache: "no-store" });
  }

  private flush(): void {
    if (this.pending.length === 0) return;
    const frames = this.pending;
    this.pending = [];
    const outdated = frames.some(outdates);
    this.set({
      ...this.state,
      fold: fold(this.state.fold, frames),
      revision: this.state.revision + (outdated ? 1 : 0),
    });
  }

  private set(state: FeedState): void {
    this.state = state;
    for (const listener of this.listeners) listener();
  }
}

function outdates(frame: Frame): boolean {
  return frame.event === "end" || frame.event === "chat-error" || frame.event === "reset";
}
