/** Messages that this page sent and that the thread does not show yet. */

import { useSyncExternalStore } from "react";
import type { Sent } from "./items";

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
