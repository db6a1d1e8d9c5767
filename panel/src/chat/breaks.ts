/** Where a turn was broken off and went on: which attempt each of its messages came from. Pure. */

import type { CallReply, TurnReply } from "../api/schema";
import { ENDED } from "../api/statuses";
import type { FoldedTurn } from "../fold/fold";
import type { Message } from "../fold/frames";

export interface Break {
  /** The attempt that it is before. */
  attempt: number;
  why: "restarted" | "retried";
}

/** Attempts that began after a process died, handed over or failed; one that began after a decision is no break. */
export function breaksOf(detail: TurnReply | undefined): Break[] {
  return (detail?.attempts ?? []).flatMap((each): Break[] => {
    if (each.outcome === "died" || each.outcome === "released") return [{ attempt: each.number + 1, why: "restarted" }];
    return each.outcome === "retried" ? [{ attempt: each.number + 1, why: "retried" }] : [];
  });
}

/**
 * The attempt of each message of a turn. The stream tells it of what it brought. Of what was read from the store it follows from
 * the ledger, which has the attempt of each call, and from the end: a turn's last word was said in its last attempt.
 */
export function attemptsOf(
  messages: readonly Message[],
  folded: FoldedTurn | undefined,
  detail: TurnReply | undefined,
): number[] {
  let attempt = 1;
  return messages.map((message, place) => {
    const last = place === messages.length - 1;
    const own = folded?.attempts.get(message.id) ?? (detail && stored(message, last, detail));
    attempt = Math.max(attempt, own ?? attempt);
    return attempt;
  });
}

function stored(message: Message, last: boolean, detail: TurnReply): number | undefined {
  if (message.role === "tool") return detail.calls.find((call) => call.id === message.tool_call_id)?.attempt;
  if (message.role !== "assistant") return undefined;
  const asked = new Set((message.tool_calls ?? []).map((call) => call.id));
  if (asked.size > 0) return startedIn(detail.calls.filter((call) => asked.has(call.id) && ofMessage(call, message)));
  return last && ENDED.has(detail.status) ? detail.attempts.at(-1)?.number : undefined;
}

function ofMessage(call: CallReply, message: Message): boolean {
  return call.message_id === "" || call.message_id === message.id;
}

/** A message asked for its calls before the first of them started. One that was started again was asked for before that. */
function startedIn(calls: readonly CallReply[]): number | undefined {
  const starts = calls.filter((call) => call.starts === 1).map((call) => call.attempt);
  return starts.length > 0 ? Math.min(...starts) : undefined;
}
