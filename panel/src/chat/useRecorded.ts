import { queryOptions, type UseQueryResult, useQueries, useQueryClient } from "@tanstack/react-query";
import { useMemo } from "react";
import { keys } from "../api/queries";
import { recordedPages } from "../api/records";
import { fewAtATime } from "../api/repeating";
import { type Attempts, recordedAttempts } from "./breaks";

interface Recorded {
  turn: string;
  attempts: Attempts;
}

/** Of those of the turns that could be read the attempt of each message, by turn; a few at a time, in this order. */
export function useRecorded(turns: readonly string[]): ReadonlyMap<string, Attempts> {
  const client = useQueryClient();
  const wanted = fewAtATime(turns, (turn) => {
    const status = client.getQueryState(recordedQuery(turn).queryKey)?.status;
    return status === undefined || status === "pending";
  });
  const asked = wanted.join(" ");
  const queries = useMemo(() => asked.split(" ").filter(Boolean).map(recordedQuery), [asked]);
  return useQueries({ queries, combine: byTurn });
}

function recordedQuery(turn: string) {
  return queryOptions({
    queryKey: [...keys.turn(turn), "attempts"],
    queryFn: ({ signal }) => read(turn, signal),
    staleTime: Number.POSITIVE_INFINITY,
  });
}

async function read(turn: string, signal: AbortSignal): Promise<Recorded> {
  const events = [];
  for await (const page of recordedPages(turn, "message", signal)) events.push(...page);
  return { turn, attempts: recordedAttempts(turn, events) };
}

function byTurn(results: UseQueryResult<Recorded>[]): ReadonlyMap<string, Attempts> {
  return new Map(results.flatMap(({ data }) => (data ? [[data.turn, data.attempts]] : [])));
}
