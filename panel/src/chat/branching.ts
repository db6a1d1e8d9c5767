/** Ways on: a conversation is forked before a message, and what was said after it stays where it was. */

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { createContext, useCallback, useContext, useMemo } from "react";
import { useLocation } from "wouter";
import { call } from "../api/client";
import { useOnce } from "../api/once";
import { keys } from "../api/queries";
import { newKey, untilAnswered } from "../api/repeating";
import type { BranchesReply, BranchPointReply, ForkReply, ForkRequest } from "../api/schema";
import { drafts, useDraft } from "../app/drafts";
import { remember } from "./outbox";

export interface Branching {
  conversation: string;
  /** Where the ways part, by the message there; null: at the end. */
  points: ReadonlyMap<string | null, BranchPointReply>;
  /** The message that is being edited. */
  editing: string | null;
  edit(message: string | null): void;
}

export const BranchingContext = createContext<Branching | null>(null);

export function useBranching(): Branching | null {
  return useContext(BranchingContext);
}

export function useBranchingOf(conversation: string): Branching {
  const [editing, setEditing] = useDraft(`${edits(conversation)}message`);
  const edit = useCallback(
    (message: string | null) => {
      drafts.forget(edits(conversation));
      setEditing(message ?? undefined);
    },
    [conversation, setEditing],
  );
  const { data } = useQuery({
    queryKey: keys.branches(conversation),
    queryFn: ({ signal }) =>
      call<BranchesReply>("GET", `api/conversations/${encodeURIComponent(conversation)}/branches`, { signal }),
  });
  return useMemo(() => {
    const points = new Map(data?.items.map((point) => [point.message, point]));
    return { conversation, points, editing: editing ?? null, edit };
  }, [conversation, data, editing, edit]);
}

/** Where a message that is being said otherwise is kept until it is sent. */
export function edits(conversation: string): string {
  return `edit ${conversation} `;
}

/** Makes the fork, once, and goes there if the person is still where they asked for it. */
export function useFork(conversation: string) {
  const client = useQueryClient();
  const [, go] = useLocation();
  const fork = useMutation<ForkReply, Error, { request: ForkRequest; key: string }, string>({
    mutationFn: ({ request, key }) =>
      call<ForkReply>("POST", `api/conversations/${encodeURIComponent(conversation)}/fork`, { body: request, key }),
    ...untilAnswered,
    onMutate: () => window.location.pathname,
    onSuccess: (made, { request }, asked) => {
      if (request.message) drafts.forget(edits(conversation));
      if (made.turn && request.message) {
        remember(made.conversation, { turn: made.turn, text: request.message, status: made.status ?? "queued" });
      }
      void client.invalidateQueries({ queryKey: keys.conversations });
      void client.invalidateQueries({ queryKey: keys.allBranches });
      if (window.location.pathname === asked) go(`/c/${made.conversation}`);
    },
  });
  return { ...fork, mutate: useOnce(fork) };
}

export function forkBefore(message: string, text?: string): { request: ForkRequest; key: string } {
  return { request: { from: { message }, ...(text !== undefined && { message: text }) }, key: newKey() };
}
