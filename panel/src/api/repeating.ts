/** What is asked of the server is asked until it answers. */

import { ApiError } from "./client";

/** Options of a mutation that the server counts once, however often it is sent. */
export const untilAnswered = {
  retry: (_failures: number, error: Error) => error instanceof ApiError && error.passing,
  retryDelay: (failures: number) => Math.min(500 * 2 ** failures, 5_000),
};

/** An idempotency key. `crypto.randomUUID` is there on secure origins alone. */
export function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const AT_ONCE = 4;

/** All of the list up to the last few that are still asked for: the next ones follow as those are answered. */
export function fewAtATime<T>(all: readonly T[], open: (each: T) => boolean): T[] {
  let left = AT_ONCE;
  return all.filter((each) => {
    if (!open(each)) return true;
    left -= 1;
    return left >= 0;
  });
}
