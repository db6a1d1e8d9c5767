import { describe, expect, it } from "vitest";
import { stepsOf, type Trace } from "./steps";

const trace = (phase: string, at: number, name: string, more: Partial<Trace> = {}): Trace => ({
  attempt: 1,
  at: String(at),
  name,
  step: 1,
  phase,
  outcome: undefined,
  ...more,
});

describe("the steps of a turn", () => {
  it("last from the first task's beginning to the last one's end", () => {
    const traces = [
      trace("enter", 1, "tools"),
      trace("enter", 2, "tools"),
      trace("call", 3, "look"),
      trace("leave", 4, "tools"),
      trace("result", 4, "look"),
      trace("leave", 6, "tools"),
    ];
    expect(stepsOf(traces)).toMatchObject([{ name: "tools", from: "1", to: "6", outcome: "done" }]);
    expect(stepsOf(traces.slice(0, -1))).toMatchObject([{ name: "tools", from: "1", to: null }]);
  });

  it("are one for each attempt, step and node", () => {
    const traces = [
      trace("enter", 1, "model"),
      trace("leave", 2, "model"),
      trace("enter", 2, "model", { step: 2 }),
      trace("enter", 3, "team/model", { step: 2 }),
      trace("enter", 5, "model", { step: 2, attempt: 2 }),
    ];
    expect(stepsOf(traces).map((each) => [each.attempt, each.number, each.name, each.to])).toEqual([
      [1, 1, "model", "2"],
      [1, 2, "model", null],
      [1, 2, "team/model", null],
      [2, 2, "model", null],
    ]);
  });

  it("keep what went wrong in one of their tasks, and are there when only their end was kept", () => {
    const traces = [
      trace("enter", 1, "tools"),
      trace("enter", 1, "tools"),
      trace("leave", 2, "tools", { outcome: "failed" }),
      trace("leave", 3, "tools"),
      trace("leave", 4, "end"),
    ];
    expect(stepsOf(traces)).toMatchObject([
      { name: "tools", to: "3", outcome: "failed" },
      { name: "end", from: "4", to: "4" },
    ]);
  });
});
