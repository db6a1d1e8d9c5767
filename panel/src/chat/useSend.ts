import { useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useSyncExternalStore } from "react";
import { keys } from "../api/queries";
import { newKey } from "../api/repeating";
import type { ChatRequest } from "../api/schema";
import { drafts } from "../app/drafts";
import { courier, type Unsent } from "./courier";
import { remember } from "./outbox";

/** Where what a person writes to a conversation is kept until it is sent; null: to a new one. */
export function draftOf(conversation: string | null): string {
  return `message ${conversation ?? "new"}`;
}

export interface Outgoing {
  /** What the person wrote. */
  text: string;
  request: ChatRequest;
}

export interface Sending {
  send(outgoing: Outgoing): void;
  unsent: readonly Unsent[];
  /** Why the last one was not taken. */
  error: Error | null;
}

export function useSend(conversation: string | null, agent: string | null = null): Sending {
  const all = useSyncExternalStore(courier.subscribe, courier.snapshot);
  const error = useSyncExternalStore(courier.subscribe, () => courier.refusal(conversation));
  const unsent = useMemo(() => all.filter((each) => each.conversation === conversation), [all, conversation]);
  const send = useCallback(
    (outgoing: Outgoing) => courier.send({ ...outgoing, conversation, agent, key: newKey() }),
    [conversation, agent],
  );
  return { send, unsent, error };
}

/** Once a page: what becomes of messages, wherever a person looks by then. */
export function useCourier(): void {
  const client = useQueryClient();
  useEffect(() => {
    const unlisten = courier.listen({
      onAccepted: ({ text }, { conversation, turn, status }) => {
        remember(conversation, { turn, text, status });
        void client.invalidateQueries({ queryKey: keys.conversation(conversation) });
        void client.invalidateQueries({ queryKey: keys.conversations });
      },
      onRefused: ({ conversation, text }) => {
        const place = draftOf(conversation);
        drafts.write(place, [text, drafts.read(place)].filter(Boolean).join("\n\n"));
      },
    });
    courier.resume();
    return unlisten;
  }, [client]);
}
