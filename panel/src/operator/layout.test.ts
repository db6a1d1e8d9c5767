// @vitest-environment jsdom
import { describe, expect, it } from "vitest";
import type { TurnReply } from "../api/schema";
import { layout, MOST_ROWS } from "./layout";
import type { Step } from "./steps";

const at = (second: number) => new Date(Date.UTC(2026, 0, 1, 12, 0, second)).toISOString();
const turn = (more: object) =>
  ({
    status: "completed",
    accepted_at: at(0),
    ended_at: at(10),
    attempts: [],
    calls: [],
    cards: [],
    ...more,
  }) as unknown as TurnReply;
const attempt = (number: number, from: number, to: number | null, outcome: string | null) => ({
  number,
  started_at: at(from),
  ended_at: to === null ? null : at(to),
  outcome,
});
const step = (name: string, from: number, to: number | null, more: object = {}): Step => ({
  key: name,
  attempt: 1,
  number: 1,
  name,
  from: at(from),
  to: to === null ? null : at(to),
  outcome: "done",
  ...more,
});

describe("the timeline", () => {
  it("has attempts, steps and calls in the order of their beginning, each at its time", () => {
    const { bars, length, gaps } = layout(
      turn({
        attempts: [attempt(1, 0, 10, "completed")],
        calls: [{ key: "k", name: "look", state: "done", status: "success", started_at: at(2), ended_at: at(4) }],
      }),
      [step("model", 0, 2), step("tools", 2, 5), step("model again", 5, 9)],
      0,
    );
    expect(length).toBe(10_000);
    expect(gaps).toEqual([]);
    expect(bars.map((bar) => [bar.kind, bar.name, bar.from, bar.to])).toEqual([
      ["attempt", "1", 0, 10_000],
      ["step", "model", 0, 2_000],
      ["step", "tools", 2_000, 5_000],
      ["call", "look", 2_000, 4_000],
      ["step", "model again", 5_000, 9_000],
    ]);
  });

  it("folds the hours in which nothing ran, and still tells how long they were", () => {
    const { gaps, length, bars } = layout(
      turn({
        ended_at: at(7_202),
        attempts: [attempt(1, 0, 1, "parked"), attempt(2, 7_201, 7_202, "completed")],
        cards: [{ id: "c", tool: "t", state: "decided", opened_at: at(1), decided_at: at(7_201) }],
      }),
      [],
      0,
    );
    expect(gaps).toHaveLength(1);
    expect(gaps[0]?.milliseconds).toBe(7_200_000);
    expect(length).toBeLessThan(3_000);
    expect(bars.map((bar) => bar.kind)).toEqual(["attempt", "parked", "attempt"]);
    expect(bars[1]?.milliseconds).toBe(7_200_000);
    expect(bars[2]?.from).toBeGreaterThan(bars[0]?.to ?? 0);
  });

  it("is never negative where clocks disagree, and grows while the turn lives", () => {
    const running = turn({
      status: "running",
      ended_at: null,
      attempts: [attempt(1, 1, null, null)],
      calls: [{ key: "k", name: "s", state: "done", status: "success", started_at: at(3), ended_at: at(2) }],
    });
    const early = layout(running, [], Date.parse(at(4)));
    const late = layout(running, [], Date.parse(at(5)));
    expect(early.bars.every((bar) => bar.to >= bar.from)).toBe(true);
    expect(late.length).toBeGreaterThan(early.length);
    expect(layout(running, [], 0).length).toBe(3_000);
  });

  it("ends a step that nobody saw end with its attempt, and lets one that is under way reach the live edge", () => {
    const attempts = [attempt(1, 0, 3, "died"), attempt(2, 4, null, null)];
    const steps = [step("cut", 1, null), step("under way", 4, null, { attempt: 2 })];
    const { bars } = layout(turn({ status: "running", ended_at: null, attempts }), steps, Date.parse(at(9)));
    const shown = bars.filter((bar) => bar.kind === "step").map((bar) => [bar.name, bar.state, bar.to]);
    expect(shown).toEqual([
      ["cut", "unknown", 3_000],
      ["under way", "running", 9_000],
    ]);
  });

  it("draws the newest of very many steps, from where they begin, under the attempt they belong to", () => {
    const steps = Array.from({ length: MOST_ROWS + 7 }, (_, n) => step(`s${n}`, n, n + 1));
    const attempts = [attempt(1, 0, 5, "died"), attempt(2, 5, MOST_ROWS + 7, "completed")];
    const { bars, hidden, length } = layout(turn({ attempts, ended_at: at(MOST_ROWS + 7) }), steps, 0);
    expect([hidden, length]).toEqual([7, MOST_ROWS * 1_000]);
    expect(bars.slice(0, 2).map((bar) => [bar.name, bar.from, bar.to])).toEqual([
      ["2", 0, MOST_ROWS * 1_000],
      ["s7", 0, 1_000],
    ]);
    expect(bars.at(-1)?.name).toBe(`s${MOST_ROWS + 6}`);
  });
});
