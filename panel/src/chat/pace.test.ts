// @vitest-environment jsdom
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { HIDDEN_MS, Pace, REST_MS } from "./pace";

describe("the pace", () => {
  beforeEach(() => vi.useFakeTimers());
  afterEach(() => vi.useRealTimers());

  it("does the work once for all that ask, and rests before it does it again", () => {
    const work = vi.fn();
    const pace = new Pace(work);
    for (let n = 0; n < 5; n += 1) pace.ask();
    vi.advanceTimersByTime(20);
    expect(work).toHaveBeenCalledTimes(1);
    pace.ask();
    pace.ask();
    vi.advanceTimersByTime(REST_MS / 2);
    expect(work).toHaveBeenCalledTimes(1);
    vi.advanceTimersByTime(REST_MS);
    expect(work).toHaveBeenCalledTimes(2);
  });

  it("goes on while nobody looks, without frames", () => {
    vi.spyOn(document, "visibilityState", "get").mockReturnValue("hidden");
    const frame = vi.spyOn(globalThis, "requestAnimationFrame");
    const work = vi.fn();
    new Pace(work).ask();
    vi.advanceTimersByTime(HIDDEN_MS);
    expect(work).toHaveBeenCalledTimes(1);
    expect(frame).not.toHaveBeenCalled();
  });
});
