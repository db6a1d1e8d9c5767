/** The stream of summaries, shared by all tabs: what it tells makes the queries it touches be read again. */

import type { InfiniteData, QueryClient } from "@tanstack/react-query";
import { SCOPE } from "../app/base";
import { isRecord, parseJson } from "../fold/json";
import { keepConnected, type LineState } from "../stream/connection";
import { nudge, wake } from "../stream/nudge";
import { type Shared, share } from "../stream/share";
import type { SseEvent } from "../stream/sse";
import { request } from "./client";
import { ENDED, keys, type Page, type Transcript } from "./queries";
import { type ReachNews, reached } from "./reach";
import { Rereads, reread } from "./reread";
import type { AgentsReply, ConversationSummary, TurnReply, TurnStatus } from "./schema";

interface Change {
  kind: "conversation" | "turn";
  conversation: string;
  turn: string | null;
  status: string;
}

const EVERYTHING = [
  keys.conversations,
  ["conversation"],
  keys.allBranches,
  keys.turns,
  ["turn"],
  keys.approvals,
  keys.server,
] as const;

export class Changes implements Shared {
  private lastId: string | undefined;
  private readonly rereads = new Rereads((queryKey) => reread(this.client, queryKey));
  /** What was asked for meanwhile was refused, and is not asked for again by itself. */
  private signedOut = false;

  constructor(
    private readonly client: QueryClient,
    private readonly onLine: (line: LineState) => void,
  ) {}

  run(signal: AbortSignal): Promise<void> {
    return share({
      name: `${SCOPE}:changes`,
      shared: this,
      lead: (owner, leading) =>
        keepConnected({ owner, signal: leading, nudge, open: (after, end) => open(after, end) }),
      signal,
      nudge,
      wake,
    });
  }

  cursor(): string | undefined {
    return this.lastId;
  }

  receive(events: readonly SseEvent[]): void {
    for (const { event, data, id } of events) {
      if (id !== undefined) this.lastId = id;
      if (event === "reset") this.everything();
      else if (event === "conversation" || event === "turn") this.apply(parseJson(data));
      else if (event === "reach") this.reached(parseJson(data));
    }
  }

  tell(line: LineState): void {
    this.onLine(line);
    const refused = this.signedOut;
    this.signedOut = line === "signed-out";
    if (line !== "catching-up") return;
    wake();
    if (this.lastId === undefined || refused) this.everything();
  }

  save(): string {
    return this.lastId ?? "";
  }

  restore(saved: string): void {
    this.lastId = saved || undefined;
    this.everything();
  }

  private apply(said: unknown): void {
    if (!isRecord(said)) return;
    const change = said as unknown as Change;
    if (change.kind === "turn") this.turnChanged(change);
    else if (change.status !== "updated") this.reread(keys.allBranches);
    if (change.kind === "conversation" && change.status === "deleted") this.gone();
    this.reread(keys.conversations);
  }

  /** What an agent says of itself is read when it can be asked (again); what was left out of what is shown meanwhile, too. */
  private reached(said: unknown): void {
    if (!isRecord(said)) return;
    const news = said as unknown as ReachNews;
    const before = this.client.getQueryData<AgentsReply>(keys.agents);
    const after = before && reached(before, news);
    if (after !== undefined && after === before) return;
    if (after) this.client.setQueryData<AgentsReply>(keys.agents, after);
    this.reread(keys.server);
    if (news.reach !== "reachable") return;
    wake();
    for (const key of [["conversation"], keys.allBranches, keys.allTurns]) this.reread(key);
  }

  /** A conversation went with its turns and cards, which nobody names. */
  private gone(): void {
    for (const key of [keys.allTurns, keys.turns, keys.approvals]) this.reread(key);
  }

  private turnChanged({ conversation, turn, status }: Change): void {
    if (turn === null) return;
    const known = this.client.getQueryData<Transcript>(keys.conversation(conversation));
    const told = known?.turns.some((each) => each.id === turn) && !ENDED.has(status as TurnStatus);
    if (!told) this.reread(keys.conversation(conversation));
    this.patch(conversation, turn, status as TurnStatus);
    this.reread(keys.turn(turn));
    this.reread(keys.turns);
    this.reread(keys.approvals);
  }

  /** At once, so that a button is not offered for what is over; the whole is read right after. */
  private patch(conversation: string, turn: string, status: TurnStatus): void {
    const patched = <T extends { id: string; status: TurnStatus | null }>(each: T, id: string): T =>
      each.id === id ? { ...each, status } : each;
    this.client.setQueryData<Transcript>(
      keys.conversation(conversation),
      (old) => old && { ...old, turns: old.turns.map((each) => patched(each, turn)) },
    );
    this.client.setQueryData<TurnReply>(keys.turn(turn), (old) => old && { ...old, status });
    this.client.setQueryData<InfiniteData<Page<ConversationSummary>>>(
      keys.conversations,
      (old) =>
        old && {
          ...old,
          pages: old.pages.map((page) => ({ ...page, items: page.items.map((each) => patched(each, conversation)) })),
        },
    );
  }

  private everything(): void {
    for (const key of EVERYTHING) void reread(this.client, key);
  }

  private reread(queryKey: readonly unknown[]): void {
    this.rereads.tell(queryKey);
  }
}

function open(after: string | undefined, signal: AbortSignal): Promise<Response> {
  const headers = after === undefined ? {} : { "Last-Event-ID": after };
  return request("api/events", { headers, signal, cache: "no-store" });
}
