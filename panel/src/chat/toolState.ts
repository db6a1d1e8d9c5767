/** What is known of one call that a model asked for: from the thread, from the turn's ledger and from its cards. Pure. */

import type { CallReply, CardReply, TurnReply } from "../api/schema";
import { ENDED } from "../api/statuses";
import type { Message, ToolCall } from "../fold/frames";

/** `unread`: the page could not read yet what the server knows of it. `never`: it was not started, and it will not be. */
export type ToolState =
  | "unread"
  | "pending"
  | "running"
  | "asked"
  | "done"
  | "error"
  | "denied"
  | "unknown"
  | "never"
  | "stopped";

export interface ToolView {
  state: ToolState;
  record: CallReply | undefined;
  /** The decision on it, or the question that waits. */
  card: CardReply | undefined;
  ranBefore: boolean;
  /** The attempt that ran it again, 0 when it ran once. */
  rerun: number;
}

/** The call as a message holds it. */
export interface CallPlace {
  /** The message's id; empty for a result whose call is not in the thread any more. */
  message: string;
  call: ToolCall;
  /** Which of the message's calls with this id, from 0. */
  nth: number;
}

export interface Known {
  /** The stream told that it was started; the ledger may be read later. */
  started?: boolean;
  /** Each start of its tool is in the ledger. */
  covered?: boolean;
}

export function toolView(
  place: CallPlace,
  result: Message | undefined,
  turn: TurnReply | undefined,
  { started = false, covered = false }: Known = {},
): ToolView {
  const record = recordOf(place, turn);
  const card = cardOf(place, record, turn);
  return {
    state: result ? answered(result, record, card) : open(record, card, turn, { started, covered }),
    record,
    card,
    ranBefore: record !== undefined && record.state === "done" && beforeRestart(record, turn),
    rerun: record !== undefined && record.starts > 1 ? record.attempt : 0,
  };
}

const TOLD: Readonly<Record<string, ToolState>> = {
  denied: "denied",
  not_started: "never",
  stopped: "stopped",
  unknown: "unknown",
};

/** A repair answers a call that came to no end like one that failed: its message, the ledger or its card tell them apart. */
function answered(result: Message, record: CallReply | undefined, card: CardReply | undefined): ToolState {
  const told = TOLD[result.status ?? ""];
  if (told) return told;
  if (result.status !== "error") return "done";
  if (record?.state === "unknown") return "unknown";
  return record === undefined && card?.state === "closed" ? "never" : "error";
}

function open(
  record: CallReply | undefined,
  card: CardReply | undefined,
  turn: TurnReply | undefined,
  { started, covered }: Known,
): ToolState {
  if (card?.state === "opened" || record?.state === "paused") return "asked";
  if (record?.state === "unknown") return "unknown";
  if (record?.state === "done") return record.status === "error" ? "error" : "done";
  if (turn && ENDED.has(turn.status)) return covered && !record && !started ? "never" : "stopped";
  if (record || started) return "running";
  return turn ? "pending" : "unread";
}

function recordOf({ message, call, nth }: CallPlace, turn: TurnReply | undefined): CallReply | undefined {
  const named = turn?.calls.filter((each) => each.id === call.id) ?? [];
  return named.filter((each) => message === "" || each.message_id === "" || each.message_id === message)[nth];
}

/** The key is the call's name for good. A call that never started has none in the ledger: its cards have it. */
function cardOf(
  { message, call, nth }: CallPlace,
  record: CallReply | undefined,
  turn: TurnReply | undefined,
): CardReply | undefined {
  const asked = turn?.cards.filter((card) => card.call_id === call.id && card.message_id === message) ?? [];
  const key = record?.key ?? [...new Set(asked.map((card) => card.key))][nth];
  return key === undefined ? undefined : turn?.cards.findLast((card) => card.key === key);
}

/** A later attempt began because the process of this one, or of one after it, went away. */
function beforeRestart(record: CallReply, turn: TurnReply | undefined): boolean {
  return (turn?.attempts ?? []).some(
    (each) => each.number >= record.attempt && (each.outcome === "died" || each.outcome === "released"),
  );
}
