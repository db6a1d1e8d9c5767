/** Messages of this page that the server took and that the thread may not show yet. */

import { useSyncExternalStore } from "react";
import type { TurnStatus } from "../api/schema";

export interface Sent {
  turn: string;
  text: string;
  /** As it was taken. */
  status: TurnStatus;
}

const NONE: readonly Sent[] = [];
const listeners = new Set<() => void>();
let byConversation: ReadonlyMap<string, readonly Sent[]> = new Map();

export function remember(conversation: string, sent: Sent): void {
  const before = byConversation.get(conversation) ?? NONE;
  byConversation = new Map(byConversation).set(conversation, [...before, sent]);
  for (const listener of listeners) listener();
}

export function useOutbox(conversation: string): readonly Sent[] {
  return useSyncExternalStore(subscribe, () => byConversation.get(conversation) ?? NONE);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
