/** What a watcher shows of a conversation's turns. The same as `perdure.events.Fold`: `cases.json` holds both to it. */

import type { Message, NumberedFrame, TraceFrame } from "./frames";
import { type ApprovalFrame, type ChatErrorFrame, type EndFrame, type Frame, isNumbered } from "./frames";

export interface FoldedTurn {
  readonly messages: ReadonlyMap<string, Message>;
  readonly tokens: ReadonlyMap<string, string>;
  readonly traces: readonly TraceFrame[];
  readonly approvals: ReadonlyMap<string, ApprovalFrame>;
  readonly ending: EndFrame | ChatErrorFrame | null;
  readonly seen: ReadonlySet<number>;
  /** The attempt that each message was committed in. */
  readonly attempts: ReadonlyMap<string, number>;
  /** The attempt that was heard of last. */
  readonly attempt: number;
}

export type Fold = ReadonlyMap<string, FoldedTurn>;

export const EMPTY: Fold = new Map();

interface Draft extends FoldedTurn {
  messages: Map<string, Message>;
  tokens: Map<string, string>;
  traces: TraceFrame[];
  approvals: Map<string, ApprovalFrame>;
  ending: EndFrame | ChatErrorFrame | null;
  seen: Set<number>;
  attempts: Map<string, number>;
  attempt: number;
}

/** Applies frames in order, each seq once. Turns that they do not touch stay the same objects. */
export function fold(before: Fold, frames: readonly Frame[]): Fold {
  if (frames.length === 0) return before;
  const turns = new Map(before);
  const drafts = new Map<string, Draft>();
  for (const frame of frames) {
    if (frame.event === "gone") continue;
    if (!isNumbered(frame)) {
      place(turns, drafts, frame.turn, draftOf(undefined, frame.attempt));
      continue;
    }
    const turn =
      drafts.get(frame.turn) ?? place(turns, drafts, frame.turn, draftOf(turns.get(frame.turn), frame.attempt));
    apply(turn, frame);
  }
  return turns;
}

function place(turns: Map<string, FoldedTurn>, drafts: Map<string, Draft>, id: string, draft: Draft): Draft {
  turns.set(id, draft);
  drafts.set(id, draft);
  return draft;
}

function draftOf(turn: FoldedTurn | undefined, attempt: number): Draft {
  return {
    messages: new Map(turn?.messages),
    tokens: new Map(turn?.tokens),
    traces: [...(turn?.traces ?? [])],
    approvals: new Map(turn?.approvals),
    ending: turn?.ending ?? null,
    seen: new Set(turn?.seen),
    attempts: new Map(turn?.attempts),
    attempt: turn?.attempt ?? attempt,
  };
}

function apply(turn: Draft, frame: NumberedFrame): void {
  if (frame.event === "rewind" || turn.seen.has(frame.seq)) return;
  turn.seen.add(frame.seq);
  turn.attempt = Math.max(turn.attempt, frame.attempt);
  switch (frame.event) {
    case "token":
      turn.tokens.set(frame.message_id, (turn.tokens.get(frame.message_id) ?? "") + frame.text);
      break;
    case "message":
      applyMessage(turn, frame.message, frame.attempt);
      break;
    case "trace":
      turn.traces.push(frame);
      break;
    case "approval":
      turn.approvals.set(frame.card, frame);
      break;
    default:
      turn.tokens.clear();
      turn.ending = frame;
  }
}

function applyMessage(turn: Draft, message: Message, attempt: number): void {
  turn.tokens.delete(message.id);
  if (message.status === "removed") {
    turn.messages.delete(message.id);
    turn.attempts.delete(message.id);
    return;
  }
  turn.messages.set(message.id, message);
  turn.attempts.set(message.id, attempt);
}
