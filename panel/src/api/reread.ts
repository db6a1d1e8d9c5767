import type { QueryClient } from "@tanstack/react-query";

/**
 * Reads again what the server told that it changed. A first read that is under way may have been answered before the change, and
 * the client would take it for the newest: it is given up and begun again.
 */
export async function reread(client: QueryClient, queryKey: readonly unknown[]): Promise<void> {
  await client.cancelQueries({ queryKey, predicate: (each) => each.state.data === undefined });
  await client.invalidateQueries({ queryKey }, { cancelRefetch: true });
}
