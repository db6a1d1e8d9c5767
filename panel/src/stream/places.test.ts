import { setMaxListeners } from "node:events";
import { describe, expect, it } from "vitest";
import { FakeLocks } from "./locks.fake";
import { PLACES, Places } from "./places";

const waits = () => undefined;

describe("places", () => {
  it("let no more than three stream at once, and everybody in turn", async () => {
    const places = new Places("s", new FakeLocks().manager(), 5);
    const end = new AbortController();
    setMaxListeners(100, end.signal);
    const turns = new Map<number, number>();
    let now = 0;
    let most = 0;
    const tab = async (id: number) => {
      while (!end.signal.aborted) {
        await places
          .hold(
            end.signal,
            async (held) => {
              now += 1;
              most = Math.max(most, now);
              turns.set(id, (turns.get(id) ?? 0) + 1);
              if ([...turns.values()].filter((count) => count >= 2).length === 8) end.abort();
              await ended(AbortSignal.any([held, end.signal]));
              now -= 1;
              return "yielded";
            },
            waits,
          )
          .catch(() => undefined);
      }
    };
    await Promise.all(Array.from({ length: 8 }, (_, id) => tab(id)));
    expect(most).toBe(PLACES);
    expect(turns.size).toBe(8);
  });

  it("are kept while nobody waits", async () => {
    const locks = new FakeLocks();
    const places = new Places("s", locks.manager(), 5);
    const end = new AbortController();
    let given = 0;
    const holding = places.hold(
      end.signal,
      async (held) => {
        given += 1;
        await ended(AbortSignal.any([held, AbortSignal.timeout(60)]));
        return held.aborted;
      },
      waits,
    );
    expect(await holding).toBe(false);
    expect(given).toBe(1);
  });

  it("do not stand in the way where a page has no locks, or may not use them", async () => {
    const denied = () => Promise.reject(new DOMException("denied", "SecurityError"));
    for (const locks of [undefined, { request: denied, query: denied } as LockManager]) {
      const places = new Places("s", locks);
      expect(await places.hold(new AbortController().signal, async () => "streamed", waits)).toBe("streamed");
    }
  });
});

function ended(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
