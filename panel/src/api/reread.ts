import type { QueryClient } from "@tanstack/react-query";

export const REST_MS = 200;
/** A read that takes longer is begun again for a change. */
export const PATIENCE_MS = 5_000;

/**
 * Reads again what the server told that it changed. A first read that is under way may have been answered before the change, and
 * the client would take it for the newest: it is given up and begun again.
 */
export async function reread(client: QueryClient, queryKey: readonly unknown[]): Promise<void> {
  await client.cancelQueries({ queryKey, predicate: (each) => each.state.data === undefined });
  await client.invalidateQueries({ queryKey }, { cancelRefetch: true });
}

/**
 * Reads again what is told to have changed: at once, and then once for all that is told meanwhile. On a busy server the changes come
 * faster than an answer: each would give up the one before, and none would ever be shown.
 */
export class Rereads {
  /** By key: whether it changed while it was read. */
  private readonly busy = new Map<string, boolean>();

  constructor(private readonly read: (queryKey: readonly unknown[]) => Promise<void>) {}

  tell(queryKey: readonly unknown[]): void {
    const name = JSON.stringify(queryKey);
    if (this.busy.has(name)) this.busy.set(name, true);
    else void this.run(name, queryKey);
  }

  private async run(name: string, queryKey: readonly unknown[]): Promise<void> {
    do {
      this.busy.set(name, false);
      await Promise.race([this.read(queryKey), passed(PATIENCE_MS)]);
      await passed(REST_MS);
    } while (this.busy.get(name));
    this.busy.delete(name);
  }
}

function passed(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
