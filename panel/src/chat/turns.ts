/** The turns of a conversation as they are now: as they were read, and what was told of them since. Pure. */

import type { TurnOfConversation, TurnReply, TurnStatus, TurnSummary } from "../api/schema";
import { ENDED } from "../api/statuses";
import type { Fold, FoldedTurn } from "../fold/fold";
import type { Sent } from "./outbox";

/** Turns that were accepted, or are told of, and that the page could not read yet are among them: they can be stopped. */
export function turnsOf(
  conversation: string,
  read: readonly TurnOfConversation[],
  fold: Fold,
  sent: readonly Sent[],
): TurnOfConversation[] {
  const known = new Set(read.map((turn) => turn.id));
  const accepted = new Map(sent.map((each) => [each.turn, each.status]));
  for (const [id] of fold) accepted.set(id, "running");
  const unread = [...accepted].filter(([id]) => !known.has(id)).map(([id, status]) => begun(conversation, id, status));
  return [...read, ...unread].map((turn) => told(turn, fold.get(turn.id)));
}

function told(turn: TurnOfConversation, folded: FoldedTurn | undefined): TurnOfConversation {
  if (!folded) return turn;
  const { ending } = folded;
  if (!ending) return turn.status === "waiting" ? { ...turn, status: "running" } : turn;
  if (ending.event === "end") return { ...turn, status: ending.status };
  const { status, reason, code, message } = ending;
  return { ...turn, status, reason: turn.reason ?? reason, error: turn.error ?? { code, message } };
}

function begun(conversation: string, id: string, status: TurnStatus): TurnOfConversation {
  return {
    id,
    conversation,
    agent: "",
    owner: "",
    status,
    reason: null,
    error: null,
    attempt_count: 1,
    supersteps: 0,
    usage: {},
    accepted_at: "",
    ended_at: null,
    next_attempt_at: null,
    cancel_requested_at: null,
    input: null,
  };
}

/** With what its details say by now: they are read each time something of a turn is told, the transcript only at ends. */
export function detailed(turn: TurnOfConversation, detail: TurnReply | undefined): TurnOfConversation {
  if (!detail) return turn;
  const usage = tokens(detail) >= tokens(turn) ? detail.usage : turn.usage;
  if (ENDED.has(turn.status)) return { ...turn, usage };
  const { next_attempt_at, cancel_requested_at } = detail;
  return { ...turn, usage, next_attempt_at, cancel_requested_at };
}

function tokens({ usage }: Pick<TurnSummary, "usage">): number {
  return (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0);
}

/** The turn that buttons are about: the active one, else the last one that began. */
export function currentTurn<T extends TurnSummary>(turns: readonly T[]): T | undefined {
  const active = turns.find((turn) => ["queued", "running", "parked"].includes(turn.status));
  return active ?? turns.findLast((turn) => turn.attempt_count > 0) ?? turns.at(-1);
}
