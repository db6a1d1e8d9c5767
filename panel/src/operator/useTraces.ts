/** What a turn's graph did: by the stream while the turn lives, from the journal once it has ended. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useSyncExternalStore } from "react";
import { ENDED, keys } from "../api/queries";
import { recordedPages } from "../api/records";
import { reread } from "../api/reread";
import type { EventReply, TurnReply } from "../api/schema";
import { Feed } from "../chat/feed";
import type { FoldedTurn } from "../fold/fold";
import type { TraceFrame } from "../fold/frames";
import { isRecord } from "../fold/json";
import type { Trace } from "./steps";

/** More is not drawn: nobody would find anything in it. */
export const MOST_TRACES = 4_000;

export function useTraces(turn: TurnReply): { traces: readonly Trace[]; error: Error | null } {
  const live = !ENDED.has(turn.status);
  const followed = useFollowed(turn, live);
  const { data, error } = useQuery({
    queryKey: [...keys.turn(turn.id), "traces"],
    queryFn: ({ signal }) => recorded(turn.id, signal),
    enabled: !live,
    staleTime: Number.POSITIVE_INFINITY,
  });
  const told = followed?.traces;
  const traces = useMemo(() => {
    const followedTraces = told?.slice(-MOST_TRACES).map(ofFrame) ?? [];
    return live ? followedTraces : (data ?? followedTraces);
  }, [live, data, told]);
  return { traces, error };
}

/** The newest of a turn. The journal is read from its beginning: of a turn without end not all of it. */
export async function recorded(turn: string, signal: AbortSignal): Promise<Trace[]> {
  let traces: Trace[] = [];
  for await (const events of recordedPages(turn, "trace", signal)) {
    traces = [...traces, ...events.map(ofEvent)].slice(-MOST_TRACES);
  }
  return traces;
}

function ofEvent({ attempt, at, data }: EventReply): Trace {
  return {
    attempt,
    at,
    name: String(data.name),
    step: Number(data.step),
    phase: String(data.phase),
    outcome: outcomeOf(data.data),
  };
}

function ofFrame({ attempt, at, name, step, phase, data }: TraceFrame): Trace {
  return { attempt, at, name, step, phase, outcome: outcomeOf(data) };
}

function outcomeOf(data: unknown): string | undefined {
  return isRecord(data) && typeof data.outcome === "string" ? data.outcome : undefined;
}

/** Its stream, shared with the other tabs; what it tells of calls and cards makes the turn be read again. */
function useFollowed({ id, conversation }: TurnReply, live: boolean): FoldedTurn | undefined {
  const client = useQueryClient();
  const feed = useMemo(() => new Feed(conversation), [conversation]);
  useEffect(() => {
    if (!live) return;
    const end = new AbortController();
    void feed.run(end.signal);
    return () => end.abort();
  }, [feed, live]);
  const turn = useSyncExternalStore(feed.subscribe, () => feed.snapshot().fold.get(id));
  const told = toldOf(turn);
  useEffect(() => {
    if (told) void reread(client, keys.turn(id));
  }, [client, id, told]);
  return turn;
}

function toldOf(turn: FoldedTurn | undefined): string {
  if (!turn) return "";
  const calls = turn.traces.filter((each) => each.call_id).length;
  const cards = Math.max(0, ...[...turn.approvals.values()].map((each) => each.seq));
  return [calls, cards, turn.attempt, turn.ending?.seq].join(":");
}
