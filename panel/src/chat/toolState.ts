/** What is known of one call that a model asked for: from the thread, from the turn's ledger and from its cards. Pure. */

import { ENDED } from "../api/queries";
import type { CallReply, CardReply, TurnReply } from "../api/schema";
import type { Message, ToolCall } from "../fold/frames";

export type ToolState = "pending" | "running" | "asked" | "done" | "error" | "denied" | "unknown" | "stopped";

export interface ToolView {
  state: ToolState;
  record: CallReply | undefined;
  /** The decision on it, or the question that waits. */
  card: CardReply | undefined;
  ranBefore: boolean;
  /** The attempt that ran it again, 0 when it ran once. */
  rerun: number;
}

export function toolView(
  call: ToolCall,
  nth: number,
  result: Message | undefined,
  turn: TurnReply | undefined,
): ToolView {
  const record = turn?.calls.filter((each) => each.id === call.id)[nth];
  const card = cardOf(call, record, turn);
  return {
    state: stateOf(result, record, card, turn),
    record,
    card,
    ranBefore: record !== undefined && record.state === "done" && beforeRestart(record, turn),
    rerun: record !== undefined && record.starts > 1 ? record.attempt : 0,
  };
}

function stateOf(
  result: Message | undefined,
  record: CallReply | undefined,
  card: CardReply | undefined,
  turn: TurnReply | undefined,
): ToolState {
  if (result?.status === "denied") return "denied";
  if (result) return result.status === "error" ? "error" : "done";
  if (card?.state === "opened" || record?.state === "paused") return "asked";
  if (record?.state === "unknown") return "unknown";
  if (record?.state === "done") return record.status === "error" ? "error" : "done";
  if (turn && ENDED.has(turn.status)) return "stopped";
  return record ? "running" : "pending";
}

/** The key is the call's name for good. A call that never started has none in the ledger: its card is known by what it asks. */
function cardOf(call: ToolCall, record: CallReply | undefined, turn: TurnReply | undefined): CardReply | undefined {
  const asked = JSON.stringify(call.args);
  return turn?.cards.findLast((card) =>
    record ? card.key === record.key : card.tool === call.name && JSON.stringify(card.arguments) === asked,
  );
}

/** A later attempt began because the process of this one, or of one after it, went away. */
function beforeRestart(record: CallReply, turn: TurnReply | undefined): boolean {
  return (turn?.attempts ?? []).some(
    (each) => each.number >= record.attempt && (each.outcome === "died" || each.outcome === "released"),
  );
}
