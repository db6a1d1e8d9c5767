// @vitest-environment jsdom
import { afterEach, expect, it, vi } from "vitest";
import { MOST_TRACES, recorded } from "./useTraces";

afterEach(() => vi.unstubAllGlobals());

it("draws the newest steps of a turn that has more than are drawn", async () => {
  const pages = MOST_TRACES / 200 + 5;
  vi.stubGlobal("fetch", async (path: string) => {
    const page = Number(new URL(path, "http://x").searchParams.get("cursor") ?? 0);
    const items = Array.from({ length: 200 }, (_, n) => ({ attempt: 1, at: "", data: { step: page * 200 + n } }));
    return Response.json({ items, next: page + 1 < pages ? String(page + 1) : null });
  });
  const traces = await recorded("t", new AbortController().signal);
  expect(traces).toHaveLength(MOST_TRACES);
  expect(traces.at(-1)?.step).toBe(pages * 200 - 1);
});
