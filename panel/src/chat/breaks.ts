/** Where a turn was broken off and went on: which attempt each of its messages came from. Pure. */

import type { EventReply, TurnReply } from "../api/schema";
import { ENDED } from "../api/statuses";
import { EMPTY, type FoldedTurn, fold } from "../fold/fold";
import type { Frame, Message } from "../fold/frames";

export interface Break {
  /** The attempt that it is before. */
  attempt: number;
  why: "restarted" | "retried";
}

/** The attempt that each message was committed in, by the message's id. */
export type Attempts = FoldedTurn["attempts"];

/** Attempts that began after a process died, handed over or failed; one that began after a decision is no break. */
export function breaksOf(detail: TurnReply | undefined): Break[] {
  return (detail?.attempts ?? []).flatMap((each): Break[] => {
    if (each.outcome === "died" || each.outcome === "released") return [{ attempt: each.number + 1, why: "restarted" }];
    return each.outcome === "retried" ? [{ attempt: each.number + 1, why: "retried" }] : [];
  });
}

/** Of a turn's `message` events as the journal has them what the stream told of the same ones, by the same fold. */
export function recordedAttempts(turn: string, events: readonly EventReply[]): Attempts {
  const frames = events.map(({ data, ...place }) => ({ ...data, ...place, turn }) as unknown as Frame);
  return fold(EMPTY, frames).get(turn)?.attempts ?? new Map();
}

/**
 * The attempt of each of a turn's messages, in their order. Where retention has removed the events nobody knows it any more: the
 * last word of a turn that ended was most likely said in its last attempt.
 */
export function attemptsOf(
  messages: readonly Message[],
  committed: Attempts,
  detail: TurnReply | undefined,
): readonly number[] {
  let attempt = 1;
  return messages.map((message, place) => {
    const own = committed.get(message.id) ?? (committed.size === 0 ? likely(message, messages[place + 1], detail) : 0);
    attempt = Math.max(attempt, own);
    return attempt;
  });
}

function likely(message: Message, next: Message | undefined, detail: TurnReply | undefined): number {
  if (next !== undefined || message.role !== "assistant" || !detail || !ENDED.has(detail.status)) return 0;
  return lastAttempt(detail);
}

export function lastAttempt(detail: TurnReply | undefined): number {
  return detail?.attempts.at(-1)?.number ?? 1;
}
