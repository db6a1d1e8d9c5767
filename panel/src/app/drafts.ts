/** What a person has begun to write, by place: it outlives a look elsewhere and a reload of this tab, until it is sent. */

import { useCallback, useSyncExternalStore } from "react";
import { SCOPE } from "./base";
import { Kept } from "./kept";

/** Of all drafts; the ones that were touched longest ago go first. */
export const MOST_DRAFTS = 100;
/** Longer ones live as long as the page. */
export const MOST_CHARACTERS = 200_000;

export class Drafts {
  private readonly texts: Map<string, string>;
  private readonly watchers = new Set<() => void>();

  constructor(private readonly kept: Pick<Kept<[string, string][]>, "read" | "write">) {
    this.texts = new Map(kept.read());
  }

  read(place: string): string | undefined {
    return this.texts.get(place);
  }

  /** Undefined: it is gone. */
  write(place: string, text: string | undefined): void {
    this.texts.delete(place);
    if (text !== undefined) this.texts.set(place, text);
    const oldest = this.texts.keys().next();
    if (this.texts.size > MOST_DRAFTS && !oldest.done) this.texts.delete(oldest.value);
    this.keep();
  }

  /** All drafts of a place and below it. */
  forget(place: string): void {
    for (const each of [...this.texts.keys()]) if (each.startsWith(place)) this.texts.delete(each);
    this.keep();
  }

  subscribe = (watcher: () => void): (() => void) => {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  };

  private keep(): void {
    let room = MOST_CHARACTERS;
    const newest = [...this.texts].reverse().filter(([, text]) => {
      if (text.length > room) return false;
      room -= text.length;
      return true;
    });
    this.kept.write(newest.reverse());
    for (const watcher of this.watchers) watcher();
  }
}

export const drafts = new Drafts(new Kept(`${SCOPE}:drafts`));

export function useDraft(place: string): [string | undefined, (text: string | undefined) => void] {
  const text = useSyncExternalStore(drafts.subscribe, () => drafts.read(place));
  const write = useCallback((next: string | undefined) => drafts.write(place, next), [place]);
  return [text, write];
}
