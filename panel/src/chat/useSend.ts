import { useMutation, useQueryClient } from "@tanstack/react-query";
import { call } from "../api/client";
import { keys } from "../api/queries";
import { untilAnswered } from "../api/repeating";
import type { AcceptedReply, ChatRequest } from "../api/schema";
import { remember } from "./outbox";

interface Options {
  conversation?: string;
  agent?: string | undefined;
  onAccepted?(accepted: AcceptedReply): void;
}

export interface Outgoing {
  /** What the person wrote. */
  text: string;
  request: ChatRequest;
}

/** Sends a message until the server has answered; repeated, it counts once. */
export function useSend({ conversation, agent, onAccepted }: Options) {
  const client = useQueryClient();
  return useMutation<AcceptedReply, Error, Outgoing & { key: string }>({
    mutationFn: ({ request, key }) => {
      const whom = conversation === undefined ? { agent: agent ?? null } : { conversation };
      return call<AcceptedReply>("POST", "api/chat", { body: { ...request, ...whom }, key });
    },
    ...untilAnswered,
    onSuccess: (accepted, { text }) => {
      remember(accepted.conversation, { turn: accepted.turn, text });
      void client.invalidateQueries({ queryKey: keys.conversation(accepted.conversation) });
      void client.invalidateQueries({ queryKey: keys.conversations });
      onAccepted?.(accepted);
    },
  });
}

export type Sending = ReturnType<typeof useSend>;
