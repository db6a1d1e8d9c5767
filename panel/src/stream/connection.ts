/** A line to the server that comes back by itself and goes on after the last event it got. */

import { backoffMs, pause } from "./backoff";
import { readEvents, type SseEvent, type SseReader } from "./sse";

/** `connecting`: the first time. `catching-up`: it stands, and what was missed comes in. `unfollowed`: the server has waited long
 * enough for the end of a turn, which goes on; it is asked again when somebody wants to know. `gone`: it was told that what is
 * watched was deleted. `missing`: there is nothing to watch, whether there ever was or not. */
export type LineState =
  | "connecting"
  | "catching-up"
  | "live"
  | "reconnecting"
  | "restarting"
  | "waiting"
  | "signed-out"
  | "unfollowed"
  | "gone"
  | "missing";

export interface LineOwner {
  /** The id to continue after; undefined from the start. */
  cursor(): string | undefined;
  receive(events: readonly SseEvent[]): void;
  tell(state: LineState): void;
}

export interface LineOptions {
  open(cursor: string | undefined, signal: AbortSignal): Promise<Response>;
  owner: LineOwner;
  signal: AbortSignal;
  /** `wake`: try now. `check`: is the line still good? `cut`: it is not. */
  nudge?: EventTarget;
  /** Holds a place for the time of one connection; the signal it gives aborts when another tab waits for it. */
  place?: <T>(signal: AbortSignal, use: (held: AbortSignal) => Promise<T>, waits: () => void) => Promise<T>;
}

/** After this long without a frame what was missed is in. */
export const SETTLED_MS = 200;
/** A line on which text streams is never silent: after this long it is live all the same. */
export const CATCHING_UP_MS = 1_000;
/** A line that was silent for longer is made anew when the person looks at the page again. */
export const STALE_MS = 25_000;

type Outcome = "again" | "yielded" | "restarting" | "signed-out" | "unfollowed" | "gone" | "missing";

/** A person may sign in again in another tab: this one is to find out. */
export const SIGNED_OUT_MS = 5_000;

/** Runs until `signal` aborts, or there is nothing to come back to. */
export async function keepConnected(options: LineOptions): Promise<void> {
  const { owner, signal, nudge } = options;
  let tries = 0;
  owner.tell("connecting");
  while (!signal.aborted) {
    const attempt = new Connection(options, () => {
      tries = 0;
    });
    const outcome = await attempt.run();
    if (signal.aborted) return;
    if (outcome === "gone" || outcome === "missing") {
      owner.tell(outcome);
      return;
    }
    if (outcome === "yielded") continue;
    owner.tell(outcome === "again" ? "reconnecting" : outcome);
    await pause(restOf(outcome, tries), signal, nudge);
    tries += 1;
  }
}

function restOf(outcome: Outcome, tries: number): number {
  if (outcome === "unfollowed") return Number.POSITIVE_INFINITY;
  return outcome === "signed-out" ? SIGNED_OUT_MS : backoffMs(tries);
}

class Connection implements SseReader {
  private readonly abort = new AbortController();
  private settle: ReturnType<typeof setTimeout> | undefined;
  private openedAt = 0;
  private hints = 0;
  private lastByteAt = Date.now();
  private lastWord: Outcome = "again";

  constructor(
    private readonly options: LineOptions,
    private readonly opened: () => void,
  ) {}

  async run(): Promise<Outcome> {
    const { signal, nudge, place } = this.options;
    const together = AbortSignal.any([signal, this.abort.signal]);
    const check = () => this.check();
    const cut = () => this.abort.abort();
    nudge?.addEventListener("check", check);
    nudge?.addEventListener("cut", cut);
    try {
      return await (place
        ? place(together, (held) => this.connect(AbortSignal.any([together, held]), held), this.waits)
        : this.connect(together));
    } catch {
      return this.hints > 1 ? "restarting" : "again";
    } finally {
      nudge?.removeEventListener("check", check);
      nudge?.removeEventListener("cut", cut);
      clearTimeout(this.settle);
    }
  }

  private async connect(signal: AbortSignal, held?: AbortSignal): Promise<Outcome> {
    try {
      const response = await this.options.open(this.options.owner.cursor(), signal);
      const refused = refusal(response);
      if (refused) return refused;
      this.opened();
      this.openedAt = Date.now();
      this.options.owner.tell("catching-up");
      this.catchUp();
      await readEvents(response, this, signal);
      return this.lastWord;
    } catch (error) {
      if (held?.aborted) return "yielded";
      throw error;
    }
  }

  private readonly waits = (): void => this.options.owner.tell("waiting");

  onBytes(): void {
    this.lastByteAt = Date.now();
  }

  onHint(): void {
    this.hints += 1;
  }

  onEvents(events: readonly SseEvent[]): void {
    this.options.owner.receive(events);
    this.lastWord = lastWordOf(events.at(-1));
    if (this.settle !== undefined) this.catchUp();
  }

  private catchUp(): void {
    clearTimeout(this.settle);
    const left = this.openedAt + CATCHING_UP_MS - Date.now();
    if (left <= 0) this.caughtUp();
    else this.settle = setTimeout(() => this.caughtUp(), Math.min(SETTLED_MS, left));
  }

  private caughtUp(): void {
    this.settle = undefined;
    this.options.owner.tell("live");
  }

  private check(): void {
    if (Date.now() - this.lastByteAt > STALE_MS) this.abort.abort();
  }
}

/** What it means when nothing comes after this event. A `chat-error` without an id ends no turn: see "The stream" in docs/http.md. */
function lastWordOf(event: SseEvent | undefined): Outcome {
  if (event?.event === "gone") return "gone";
  return event?.event === "chat-error" && event.id === undefined ? "unfollowed" : "again";
}

function refusal(response: Response): Outcome | null {
  if (response.ok) return null;
  if (response.status === 401 || response.status === 403) return "signed-out";
  if (response.status === 404 || response.status === 410) return "missing";
  return response.status === 503 ? "restarting" : "again";
}
