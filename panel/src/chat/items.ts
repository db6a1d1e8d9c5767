/** What is shown of a conversation, in order: the stored transcript, and over it what its stream told since. Pure. */

import type { Transcript } from "../api/queries";
import type { TurnOfConversation, TurnReply, TurnSummary } from "../api/schema";
import type { Fold, FoldedTurn } from "../fold/fold";
import type { Message, ToolCall } from "../fold/frames";
import { showJson } from "../fold/json";
import type { CallPlace } from "./toolState";

export type Item =
  | { kind: "user"; key: string; text: string; pending: boolean }
  | { kind: "assistant"; key: string; text: string; live: boolean; cut: boolean }
  | { kind: "reasoning"; key: string; text: string }
  | ({ kind: "call"; key: string; turn: string; result: Message | undefined } & CallPlace)
  | { kind: "divider"; key: string; why: "restarted" | "retried" }
  | { kind: "end"; key: string; turn: string };

export interface Sent {
  turn: string;
  text: string;
}

export interface Sources {
  transcript: Pick<Transcript, "messages" | "turns"> | undefined;
  fold: Fold;
  /** Messages that this page sent, by turn: shown until the thread has them. */
  sent: readonly Sent[];
  /** Details of turns as far as they are known. */
  details: ReadonlyMap<string, TurnReply>;
}

const INPUT = "msg-";

export function itemsOf({ transcript, fold, sent, details }: Sources): Item[] {
  const groups = grouped(transcript?.messages ?? [], fold);
  const known = new Set(transcript?.turns.map((turn) => turn.id));
  const unseen = [...sent, ...waiting(transcript?.turns ?? [], sent)];
  const turns = new Set([...groups.keys(), ...known, ...fold.keys(), ...sent.map((each) => each.turn)]);
  return [...turns].flatMap((turn) => {
    const messages = groups.get(turn) ?? [];
    const spoken = spokenItems(turn, messages, fold.get(turn), details.get(turn));
    const end: Item[] = known.has(turn) || fold.has(turn) ? [{ kind: "end", key: `end-${turn}`, turn }] : [];
    return [...sentItems(turn, messages, unseen), ...spoken, ...end];
  });
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
  return turns.flatMap(({ id, input }) =>
    input && !sent.some((each) => each.turn === id) ? [{ turn: id, text: textOf(input) }] : [],
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
): Item[] {
  const breaks = breaksOf(detail);
  const items: Item[] = [];
  const used = new Set<string>();
  let attempt = 1;
  const divide = (next: number) => {
    const crossed = breaks.find((each) => each.attempt > attempt && each.attempt <= next);
    if (crossed) items.push({ kind: "divider", key: `divider-${turn}-${crossed.attempt}`, why: crossed.why });
    attempt = Math.max(attempt, next);
  };
  messages.forEach((message, place) => {
    divide(folded?.attempts.get(message.id) ?? attempt);
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
      items.push({ kind: "call", key, turn, message: message.id, call, nth, result });
    }
  });
  if (folded && !folded.ending) divide(folded.attempt);
  const committed = new Set(messages.map((message) => message.id));
  for (const [id, text] of folded?.tokens ?? []) {
    if (committed.has(id)) continue;
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
  return { kind: "call", key: `call-${message.id}`, turn, message: "", call, nth: 0, result: message };
}

interface Break {
  attempt: number;
  why: "restarted" | "retried";
}

/** Attempts that began after a process died, handed over or failed; one that began after a decision is no break. */
function breaksOf(detail: TurnReply | undefined): Break[] {
  return (detail?.attempts ?? []).flatMap((each): Break[] => {
    if (each.outcome === "died" || each.outcome === "released") return [{ attempt: each.number + 1, why: "restarted" }];
    return each.outcome === "retried" ? [{ attempt: each.number + 1, why: "retried" }] : [];
  });
}

/** The turn that buttons are about: the active one, else the last one that began. */
export function currentTurn(turns: readonly TurnSummary[]): TurnSummary | undefined {
  const active = turns.find((turn) => ["queued", "running", "parked"].includes(turn.status));
  return active ?? turns.findLast((turn) => turn.attempt_count > 0) ?? turns.at(-1);
}
