/** Waiting before the next try: it doubles, up to a limit, and half of it is left to chance so that many tabs do not come at once. */

export const FIRST_MS = 500;
export const LONGEST_MS = 8_000;

export function backoffMs(tries: number, chance: () => number = Math.random): number {
  const whole = Math.min(LONGEST_MS, FIRST_MS * 2 ** Math.min(tries, 10));
  return whole / 2 + (whole / 2) * chance();
}

/** Ends after the time (infinite: never by itself), at once when `wake` fires, or when `signal` aborts. Never rejects. */
export function pause(ms: number, signal: AbortSignal, wake?: EventTarget): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      wake?.removeEventListener("wake", done);
      resolve();
    };
    const timer = Number.isFinite(ms) ? setTimeout(done, ms) : undefined;
    signal.addEventListener("abort", done);
    wake?.addEventListener("wake", done);
    if (signal.aborted) done();
  });
}
