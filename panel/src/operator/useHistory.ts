import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { call } from "../api/client";
import { keys, type Page, query } from "../api/queries";
import type { CheckpointReply, CheckpointSummary } from "../api/schema";

const path = (conversation: string) => `api/conversations/${encodeURIComponent(conversation)}/checkpoints`;

/** The checkpoints of a conversation, newest first. */
export function useHistory(conversation: string, open: boolean) {
  return useInfiniteQuery({
    queryKey: [...keys.conversation(conversation), "checkpoints"],
    queryFn: ({ pageParam, signal }) =>
      call<Page<CheckpointSummary>>("GET", path(conversation) + query({ cursor: pageParam }), { signal }),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    enabled: open,
  });
}

/** One of them with its values: it never changes. */
export function useCheckpoint(conversation: string, id: string | null) {
  return useQuery({
    queryKey: ["checkpoint", conversation, id],
    queryFn: ({ signal }) =>
      call<CheckpointReply>("GET", `${path(conversation)}/${encodeURIComponent(id ?? "")}`, { signal }),
    enabled: id !== null,
    staleTime: Number.POSITIVE_INFINITY,
  });
}
