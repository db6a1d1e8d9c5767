/** A browser that speaks HTTP/1.1 gives one server six connections for all its tabs. Streams of conversations take at most three of them, in turns:
 * a tab whose conversation has none waits for a place, goes on from its cursor, and gives the place up after a while. */

export const PLACES = 3;
export const TURN_MS = 2_500;

export class Places {
  constructor(
    private readonly scope: string,
    private readonly locks: LockManager | undefined = globalThis.navigator?.locks,
    private readonly turnMs: number = TURN_MS,
  ) {}

  /** Where there are no locks (a page without a secure origin), every tab takes its own connection. */
  hold = async <T>(signal: AbortSignal, use: (held: AbortSignal) => Promise<T>, waits: () => void): Promise<T> => {
    if (!this.locks) return use(new AbortController().signal);
    for (const place of this.names()) {
      const taken = await this.locks.request(place, { ifAvailable: true }, (lock) =>
        lock ? this.inTurns(place, use) : undefined,
      );
      if (taken !== undefined) return taken;
    }
    waits();
    const queue = await this.shortestQueue();
    return this.locks.request(queue, { signal }, () => this.inTurns(queue, use));
  };

  private async inTurns<T>(place: string, use: (held: AbortSignal) => Promise<T>): Promise<T> {
    const held = new AbortController();
    const clock = setInterval(async () => {
      if ((await this.waitingFor()).includes(place)) held.abort();
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

  private async waitingFor(): Promise<string[]> {
    const state = await this.locks?.query();
    return (state?.pending ?? []).map((lock) => lock.name ?? "");
  }

  private async shortestQueue(): Promise<string> {
    const waiting = await this.waitingFor();
    const length = (place: string) => waiting.filter((name) => name === place).length;
    return this.names().reduce((best, place) => (length(place) < length(best) ? place : best));
  }
}
