import { type UseMutationResult, useMutation, useQueryClient } from "@tanstack/react-query";
import { call } from "../api/client";
import { ACTIVE, keys } from "../api/queries";
import { newKey, untilAnswered } from "../api/repeating";
import type { AcceptedReply, TurnSummary } from "../api/schema";

export interface TurnActions {
  stop(): void;
  stopping: boolean;
  resume(): void;
  resuming: boolean;
  error: Error | null;
  /** What was asked and is not answered yet. */
  asked: { stop: Asked; resume: Asked };
}

type Asked = Pick<UseMutationResult<unknown, Error>, "isPending" | "failureReason">;

/** What a person can do with the current turn of a conversation. The server says what came of it. */
export function useTurnActions(conversation: string, current: TurnSummary | undefined): TurnActions {
  const client = useQueryClient();
  const reread = async () => {
    await client.invalidateQueries({ queryKey: keys.conversation(conversation) });
    if (current) await client.invalidateQueries({ queryKey: keys.turn(current.id) });
    await client.invalidateQueries({ queryKey: keys.turns });
  };
  const cancel = useMutation({
    mutationFn: (turn: string) => call<TurnSummary>("POST", `api/turns/${encodeURIComponent(turn)}/cancel`),
    ...untilAnswered,
    onSettled: reread,
  });
  const resume = useMutation({
    mutationFn: (key: string) => call<AcceptedReply>("POST", "api/chat", { body: { conversation, resume: true }, key }),
    ...untilAnswered,
    onSettled: reread,
  });
  const active = current !== undefined && ACTIVE.has(current.status);
  const asked = current?.cancel_requested_at !== null || cancel.isPending || cancel.variables === current.id;
  return {
    stop: () => current && cancel.mutate(current.id),
    stopping: active && asked && !cancel.isError,
    resume: () => resume.mutate(newKey()),
    resuming: resume.isPending,
    error: cancel.error ?? resume.error,
    asked: { stop: cancel, resume },
  };
}
