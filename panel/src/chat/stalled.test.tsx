// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, render } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { Stalled } from "./Stalled";

afterEach(() => {
  cleanup();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

it("tells what is wrong with the server when a turn takes long, and not before", async () => {
  vi.useFakeTimers();
  const ready = { status: "degraded", reasons: ["Started again too often."] };
  const ask = vi.fn(async () => Response.json(ready));
  vi.stubGlobal("fetch", ask);
  const { container } = render(
    <QueryClientProvider client={new QueryClient()}>
      <Stalled />
    </QueryClientProvider>,
  );
  await act(() => vi.advanceTimersByTimeAsync(9_000));
  expect(ask).not.toHaveBeenCalled();
  for (let n = 0; n < 20; n += 1) await act(() => vi.advanceTimersByTimeAsync(100));
  expect(container.textContent).toBe("Started again too often.");
});
