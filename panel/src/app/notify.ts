/** Things a person must be told wherever they are on the page, until they have read them. */

import { useSyncExternalStore } from "react";

export interface Notice {
  id: number;
  text: string;
}

const listeners = new Set<() => void>();
let notices: readonly Notice[] = [];
let last = 0;

export function notify(text: string): void {
  last += 1;
  change([...notices, { id: last, text }]);
}

export function dismiss(id: number): void {
  change(notices.filter((each) => each.id !== id));
}

export function useNotices(): readonly Notice[] {
  return useSyncExternalStore(subscribe, () => notices);
}

function change(next: readonly Notice[]): void {
  notices = next;
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
