/** Takes a person's messages to the server, and does not rest until it has answered: after a look elsewhere, a reload of this
 * tab, a restart of the server, a new sign-in. Each goes with an idempotency key of its own, so it counts once. */

import { call } from "../api/client";
import { type Hold, holdOf } from "../api/held";
import { untilAnswered } from "../api/repeating";
import type { AcceptedReply, ChatRequest } from "../api/schema";
import { SCOPE } from "../app/base";
import { Kept } from "../app/kept";
import { pause } from "../stream/backoff";
import { nudge } from "../stream/nudge";

export interface Letter {
  /** The idempotency key. */
  key: string;
  /** Null: a new one begins with it. */
  conversation: string | null;
  agent: string | null;
  /** What the person wrote. */
  text: string;
  request: ChatRequest;
}

export interface Unsent extends Letter {
  /** Why it, or one before it, was tried in vain. */
  hold: Hold | null;
}

export interface Listener {
  onAccepted?(letter: Letter, accepted: AcceptedReply): void;
  onRefused?(letter: Letter): void;
}

interface Means {
  deliver(letter: Letter): Promise<AcceptedReply>;
  kept: Pick<Kept<Letter[]>, "read" | "write">;
  wait(failures: number): Promise<void>;
}

export class Courier {
  private letters: readonly Letter[];
  private shown: readonly Unsent[] = [];
  private readonly held = new Map<string | null, Hold>();
  private readonly refusals = new Map<string | null, Error>();
  private readonly onTheWay = new Set<string | null>();
  private readonly listeners = new Set<Listener>();
  private readonly watchers = new Set<() => void>();

  constructor(private readonly means: Means) {
    this.letters = means.kept.read() ?? [];
    this.show();
  }

  /** Goes on with what was not answered before a reload. */
  resume(): void {
    for (const place of new Set(this.letters.map((each) => each.conversation))) void this.carry(place);
  }

  send(letter: Letter): void {
    this.refusals.delete(letter.conversation);
    this.change([...this.letters, letter]);
    void this.carry(letter.conversation);
  }

  listen(listener: Listener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  subscribe = (watcher: () => void): (() => void) => {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  };

  snapshot = (): readonly Unsent[] => this.shown;

  /** Why the last message there was not taken. */
  refusal(place: string | null): Error | null {
    return this.refusals.get(place) ?? null;
  }

  /** Those of one conversation one by one, in the order in which they were written. */
  private async carry(place: string | null): Promise<void> {
    if (this.onTheWay.has(place)) return;
    this.onTheWay.add(place);
    for (let letter = this.next(place); letter; letter = this.next(place)) await this.deliver(letter);
    this.onTheWay.delete(place);
  }

  private next(place: string | null): Letter | undefined {
    return this.letters.find((each) => each.conversation === place);
  }

  private async deliver(letter: Letter): Promise<void> {
    for (let failures = 0; ; failures += 1) {
      let hold: Hold | null;
      try {
        const accepted = await this.means.deliver(letter);
        for (const each of this.listeners) each.onAccepted?.(letter, accepted);
        return this.remove(letter);
      } catch (error) {
        hold = holdOf(error);
        if (hold === null) return this.refused(letter, error instanceof Error ? error : new Error(String(error)));
      }
      this.held.set(letter.conversation, hold);
      this.show();
      await this.means.wait(failures);
    }
  }

  private refused(letter: Letter, error: Error): void {
    this.refusals.set(letter.conversation, error);
    for (const each of this.listeners) each.onRefused?.(letter);
    this.remove(letter);
  }

  private remove({ key, conversation }: Letter): void {
    this.held.delete(conversation);
    this.change(this.letters.filter((each) => each.key !== key));
  }

  private change(letters: readonly Letter[]): void {
    this.letters = letters;
    this.means.kept.write([...letters]);
    this.show();
  }

  private show(): void {
    this.shown = this.letters.map((each) => ({ ...each, hold: this.held.get(each.conversation) ?? null }));
    for (const watcher of this.watchers) watcher();
  }
}

export const courier = new Courier({
  deliver: ({ conversation, agent, request, key }) => {
    const whom = conversation === null ? { agent } : { conversation };
    return call<AcceptedReply>("POST", "api/chat", { body: { ...request, ...whom }, key });
  },
  kept: new Kept<Letter[]>(`${SCOPE}:unsent`),
  wait: (failures) => pause(untilAnswered.retryDelay(failures), new AbortController().signal, nudge),
});
