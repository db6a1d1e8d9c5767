/** A browser that speaks HTTP/1.1 gives one server six connections for all its tabs. Streams of conversations take at most three of them, in turns:
 * a tab whose conversation has none waits for a place, goes on from its cursor, and gives the place up after a while. */

import { usable } from "./locks";

export const PLACES = 3;
export const TURN_MS = 2_500;

export class Places {
  constructor(
    private readonly scope: string,
    private readonly given?: LockManager,
    private readonly turnMs: number = TURN_MS,
  ) {}

  /** Where there are no locks (a page without a secure origin), every tab takes its own connection. */
  hold = async <T>(signal: AbortSignal, use: (held: AbortSignal) => Promise<T>, waits: () => void): Promise<T> => {
    const locks = await usable(this.given);
    if (!locks) return use(new AbortController().signal);
    for (const place of this.names()) {
      const taken = await locks.request(place, { ifAvailable: true }, (lock) =>
        lock ? this.inTurns(locks, place, use) : undefined,
      );
      if (taken !== undefined) return taken;
    }
    waits();
    const queue = await this.shortestQueue(locks);
    return locks.request(queue, { signal }, () => this.inTurns(locks, queue, use));
  };

  private async inTurns<T>(locks: LockManager, place: string, use: (held: AbortSignal) => Promise<T>): Promise<T> {
    const held = new AbortController();
    const clock = setInterval(async () => {
      if ((await waitingFor(locks)).includes(place)) held.abort();
    }, this.turnMs);
    try {
      return await use(held.signal);
    } finally {
      clearInterval(clock);
    }
  }

  private names(): string[] {
    return Array.from({ length: PLACES }, (_, n) => `${this.scope}:place:${n}`);
  }

  private async shortestQueue(locks: LockManager): Promise<string> {
    const waiting = await waitingFor(locks);
    const length = (place: string) => waiting.filter((name) => name === place).length;
    return this.names().reduce((best, place) => (length(place) < length(best) ? place : best));
  }
}

async function waitingFor(locks: LockManager): Promise<string[]> {
  const { pending } = await locks.query();
  return (pending ?? []).map((lock) => lock.name ?? "");
}
