/** What is shown of a conversation, in order: the stored transcript, and over it what its stream told since. Pure. */

import type { Hold } from "../api/held";
import type { TurnOfConversation, TurnReply } from "../api/schema";
import type { Fold, FoldedTurn } from "../fold/fold";
import type { Message, ToolCall, TraceFrame } from "../fold/frames";
import { showJson } from "../fold/json";
import { type Attempts, attemptsOf, breaksOf, lastAttempt } from "./breaks";
import type { Unsent } from "./courier";
import type { Sent } from "./outbox";
import type { CallPlace } from "./toolState";

export type Item =
  | { kind: "user"; key: string; text: string; pending: boolean }
  | { kind: "unsent"; key: string; text: string; hold: Hold | null }
  | { kind: "assistant"; key: string; text: string; live: boolean; cut: boolean }
  | { kind: "reasoning"; key: string; text: string }
  | ({ kind: "call"; key: string; turn: string; result: Message | undefined; started: boolean } & CallPlace)
  | { kind: "divider"; key: string; why: "restarted" | "retried" }
  | { kind: "end"; key: string; turn: string };

export interface Sources {
  messages: readonly Message[];
  turns: readonly TurnOfConversation[];
  fold: Fold;
  /** Messages of this page that the server took, by turn: shown until the thread has them. */
  sent: readonly Sent[];
  /** Messages that no server has answered yet. */
  unsent: readonly Unsent[];
  /** Details of turns as far as they are known. */
  details: ReadonlyMap<string, TurnReply>;
  /** What the journal has of turns that the stream told no messages of, by turn. */
  recorded: ReadonlyMap<string, Attempts>;
}

const INPUT = "msg-";
const NONE: Attempts = new Map();

export function itemsOf({ messages: stored, turns: known, fold, sent, unsent, details, recorded }: Sources): Item[] {
  const groups = grouped(stored, fold);
  const ids = new Set(known.map((turn) => turn.id));
  const unseen = [...sent, ...waiting(known, sent)];
  const turns = new Set([...groups.keys(), ...ids, ...fold.keys(), ...sent.map((each) => each.turn)]);
  const items = [...turns].flatMap((turn) => {
    const messages = groups.get(turn) ?? [];
    const spoken = spokenItems(turn, messages, fold.get(turn), details.get(turn), recorded.get(turn));
    const end: Item[] = ids.has(turn) || fold.has(turn) ? [{ kind: "end", key: `end-${turn}`, turn }] : [];
    return [...sentItems(turn, messages, unseen), ...spoken, ...end];
  });
  return [...items, ...unsent.map(unsentItem)];
}

function unsentItem({ key, text, hold }: Unsent): Item {
  return { kind: "unsent", key: `unsent-${key}`, text, hold };
}

/** Messages by turn: a turn begins with the message that its id is in, and what follows is its own. */
function grouped(stored: readonly Message[], fold: Fold): Map<string, Message[]> {
  const newer = new Map([...fold.values()].flatMap((turn) => [...turn.messages]));
  const groups = new Map<string, Message[]>();
  const placed = new Set<string>();
  let turn = "";
  for (const message of stored) {
    if (message.id.startsWith(INPUT)) turn = message.id.slice(INPUT.length);
    groupOf(groups, turn).push(newer.get(message.id) ?? message);
    placed.add(message.id);
  }
  for (const [id, folded] of fold) {
    const more = [...folded.messages.values()].filter((message) => !placed.has(message.id));
    if (more.length > 0) groupOf(groups, id).push(...more);
  }
  return groups;
}

function groupOf(groups: Map<string, Message[]>, turn: string): Message[] {
  const group = groups.get(turn) ?? [];
  groups.set(turn, group);
  return group;
}

/** What turns have to say that the thread does not hold yet, sent from elsewhere or before a reload. */
function waiting(turns: readonly TurnOfConversation[], sent: readonly Sent[]): Sent[] {
  return turns.flatMap(({ id, input, status }) =>
    input && !sent.some((each) => each.turn === id) ? [{ turn: id, text: textOf(input), status }] : [],
  );
}

function textOf(input: Record<string, unknown>): string {
  return typeof input.message === "string" ? input.message : showJson(input.input);
}

function sentItems(turn: string, messages: readonly Message[], sent: readonly Sent[]): Item[] {
  if (messages.some((message) => message.id === INPUT + turn)) return [];
  return sent
    .filter((each) => each.turn === turn)
    .map((each) => ({ kind: "user", key: INPUT + turn, text: each.text, pending: true }));
}

function spokenItems(
  turn: string,
  messages: readonly Message[],
  folded: FoldedTurn | undefined,
  detail: TurnReply | undefined,
  recorded: Attempts | undefined,
): Item[] {
  const committed = folded?.attempts.size ? folded.attempts : recorded;
  const breaks = committed ? breaksOf(detail) : [];
  const attempts = attemptsOf(messages, committed ?? NONE, detail);
  const items: Item[] = [];
  const used = new Set<string>();
  let attempt = 1;
  const divide = (next: number) => {
    const crossed = breaks.find((each) => each.attempt > attempt && each.attempt <= next);
    if (crossed) items.push({ kind: "divider", key: `divider-${turn}-${crossed.attempt}`, why: crossed.why });
    attempt = Math.max(attempt, next);
  };
  messages.forEach((message, place) => {
    divide(attempts[place] ?? attempt);
    if (message.role === "tool") {
      if (!used.has(message.id)) items.push(orphan(turn, message));
      return;
    }
    if (message.reasoning) items.push({ kind: "reasoning", key: `reasoning-${message.id}`, text: message.reasoning });
    items.push(...textItems(message));
    const seen = new Map<string, number>();
    for (const call of message.tool_calls ?? []) {
      const result = resultOf(call, messages.slice(place + 1), used);
      if (result) used.add(result.id);
      const nth = seen.get(call.id) ?? 0;
      seen.set(call.id, nth + 1);
      const key = `call-${message.id}-${call.id}${nth > 0 ? `-${nth}` : ""}`;
      const started = (folded?.traces ?? []).some((trace) => starts(trace, message, call));
      items.push({ kind: "call", key, turn, message: message.id, call, nth, result, started });
    }
  });
  divide(lastAttempt(detail));
  const known = new Set(messages.map((message) => message.id));
  for (const [id, text] of folded?.tokens ?? []) {
    if (known.has(id)) continue;
    items.push({ kind: "assistant", key: id, text, live: true, cut: false });
  }
  return items;
}

function textItems(message: Message): Item[] {
  if (message.content === "") return [];
  if (message.role === "user") return [{ kind: "user", key: message.id, text: message.content, pending: false }];
  const cut = message.status === "cancelled";
  return [{ kind: "assistant", key: message.id, text: message.content, live: false, cut }];
}

/** Ids of calls may come again in a later message: the first result after the call that no other call took is its own. */
function resultOf(call: ToolCall, later: readonly Message[], used: ReadonlySet<string>): Message | undefined {
  return later.find((each) => each.role === "tool" && each.tool_call_id === call.id && !used.has(each.id));
}

function orphan(turn: string, message: Message): Item {
  const call = { id: message.tool_call_id ?? message.id, name: message.name ?? "", args: {} };
  return { kind: "call", key: `call-${message.id}`, turn, message: "", call, nth: 0, result: message, started: true };
}

function starts(trace: TraceFrame, message: Message, call: ToolCall): boolean {
  if (trace.phase !== "call" || trace.call_id !== call.id) return false;
  const asker = trace.data?.message_id;
  return !asker || asker === message.id;
}
