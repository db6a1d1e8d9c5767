/** What the page knows of the server, kept by key, and read again when the server tells that it changed. */

import {
  keepPreviousData,
  QueryClient,
  queryOptions,
  type UseQueryResult,
  useInfiniteQuery,
  useQueries,
  useQuery,
  useQueryClient,
} from "@tanstack/react-query";
import { useMemo } from "react";
import type { Message } from "../fold/frames";
import { ApiError, call } from "./client";
import { fewAtATime } from "./repeating";
import type {
  AgentsReply,
  CardReply,
  ConversationReply,
  ConversationSummary,
  MeReply,
  ReadyReply,
  ServerReply,
  TurnCounts,
  TurnReply,
  TurnSummary,
} from "./schema";

export interface Page<T> {
  items: T[];
  next: string | null;
}

export type Transcript = Omit<ConversationReply, "messages"> & { messages: Message[] };

export { ACTIVE, ENDED } from "./statuses";

export const keys = {
  conversations: ["conversations"] as const,
  conversation: (id: string) => ["conversation", id] as const,
  branches: (id: string) => ["branches", id] as const,
  allBranches: ["branches"] as const,
  turns: ["turns"] as const,
  turn: (id: string) => ["turn", id] as const,
  allTurns: ["turn"] as const,
  approvals: ["approvals"] as const,
  server: ["server"] as const,
  agents: ["server", "agents"] as const,
};

/** What is no answer of the server is a fault of the page: asking again seldom helps. */
const FAULTS = 3;

export function newClient(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      queries: {
        staleTime: 30_000,
        retry: (failures, error) => (error instanceof ApiError ? error.passing : failures < FAULTS),
        retryDelay: (failures) => Math.min(500 * 2 ** failures, 5_000),
        networkMode: "always",
      },
      mutations: { networkMode: "always" },
    },
  });
}

/** `words`: only those of which the title or one message holds them all. */
export function useConversations(words = "") {
  return useInfiniteQuery({
    queryKey: words ? [...keys.conversations, words] : keys.conversations,
    queryFn: ({ pageParam, signal }) =>
      call<Page<ConversationSummary>>(
        "GET",
        `api/conversations${query({ limit: "100", q: words, cursor: pageParam })}`,
        {
          signal,
        },
      ),
    placeholderData: keepPreviousData,
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
  });
}

export function useTranscript(id: string, enabled: boolean) {
  return useQuery({
    queryKey: keys.conversation(id),
    queryFn: ({ signal }) => call<Transcript>("GET", `api/conversations/${encodeURIComponent(id)}`, { signal }),
    enabled,
    staleTime: Number.POSITIVE_INFINITY,
    // A copy is read again until the agent itself answers: it may have been busy, and not away, so that nobody tells of it.
    refetchInterval: ({ state }) => state.data !== undefined && state.data.reach !== "reachable" && REFRESH_MS,
  });
}

function turnQuery(id: string) {
  return queryOptions({
    queryKey: keys.turn(id),
    queryFn: ({ signal }) => call<TurnReply>("GET", `api/turns/${encodeURIComponent(id)}`, { signal }),
    staleTime: Number.POSITIVE_INFINITY,
  });
}

export function useTurn(id: string | undefined) {
  return useQuery({ ...turnQuery(id ?? ""), enabled: id !== undefined });
}

/** Those of the turns that could be read, by id; the newest first, and a few at a time: a long conversation has many. */
export function useTurnsDetails(ids: readonly string[]): ReadonlyMap<string, TurnReply> {
  const client = useQueryClient();
  const wanted = fewAtATime(ids.toReversed(), (id) => {
    const status = client.getQueryState(keys.turn(id))?.status;
    return status === undefined || status === "pending";
  });
  const asked = wanted.join(" ");
  const queries = useMemo(() => asked.split(" ").filter(Boolean).map(turnQuery), [asked]);
  return useQueries({ queries, combine: byId });
}

function byId(results: UseQueryResult<TurnReply>[]): ReadonlyMap<string, TurnReply> {
  return new Map(results.flatMap(({ data }) => (data ? [[data.id, data]] : [])));
}

export interface TurnFilters {
  status?: string | undefined;
  agent?: string | undefined;
  q?: string | undefined;
  attempts_min?: string | undefined;
}

/** While `paused` what was read stays; what was never read is. */
export function useTurns(filters: TurnFilters, paused: boolean) {
  return useInfiniteQuery({
    queryKey: [...keys.turns, filters],
    queryFn: ({ pageParam, signal }) =>
      call<Page<TurnSummary>>("GET", `api/turns${query({ ...filters, cursor: pageParam })}`, { signal }),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    enabled: ({ state }) => !paused || state.data === undefined,
  });
}

export function useApprovals() {
  return useInfiniteQuery({
    queryKey: keys.approvals,
    queryFn: ({ pageParam, signal }) =>
      call<Page<CardReply>>("GET", `api/approvals${query({ cursor: pageParam })}`, { signal }),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
  });
}

export function useServer() {
  return useQuery({
    queryKey: [...keys.server, "info"],
    queryFn: ({ signal }) => call<ServerReply>("GET", "api/server", { signal }),
    refetchInterval: REFRESH_MS,
  });
}

export function useCounts(agent: string | undefined, paused: boolean) {
  return useQuery({
    queryKey: [...keys.turns, "counts", agent],
    queryFn: ({ signal }) => call<TurnCounts>("GET", `api/turns/counts${query({ agent })}`, { signal }),
    enabled: ({ state }) => !paused || state.data === undefined,
  });
}

export function useAgents() {
  return useQuery({
    queryKey: keys.agents,
    queryFn: ({ signal }) => call<AgentsReply>("GET", "api/agents", { signal }),
  });
}

export function useMe() {
  return useQuery({
    queryKey: [...keys.server, "me"],
    queryFn: ({ signal }) => call<MeReply>("GET", "api/me", { signal }),
    staleTime: Number.POSITIVE_INFINITY,
  });
}

export const REFRESH_MS = 5_000;

export function useReady(enabled = true) {
  return useQuery({
    enabled,
    queryKey: [...keys.server, "ready"],
    queryFn: ({ signal }) => readiness(signal),
    refetchInterval: REFRESH_MS,
  });
}

/** A server that is not ready says so with a 503 and the same body. */
async function readiness(signal: AbortSignal): Promise<ReadyReply> {
  try {
    return await call<ReadyReply>("GET", "api/readyz", { signal });
  } catch (error) {
    if (error instanceof ApiError && error.status === 503) return { status: "unready" };
    throw error;
  }
}

export function query(fields: Record<string, string | undefined>): string {
  const given = Object.entries(fields).filter((entry): entry is [string, string] => Boolean(entry[1]));
  return given.length > 0 ? `?${new URLSearchParams(given)}` : "";
}
