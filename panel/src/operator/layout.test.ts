// @vitest-environment jsdom
import { describe, expect, it } from "vitest";
import type { TurnReply } from "../api/schema";
import { layout } from "./layout";
import { parseMetrics, turnCounts } from "./metrics";

const at = (second: number) => new Date(Date.UTC(2026, 0, 1, 12, 0, second)).toISOString();
const turn = (more: object) =>
  ({ accepted_at: at(0), ended_at: at(10), attempts: [], calls: [], cards: [], ...more }) as unknown as TurnReply;

describe("the timeline", () => {
  it("places bars by their time", () => {
    const { bars, length, gaps } = layout(
      turn({
        attempts: [{ number: 1, started_at: at(0), ended_at: at(10), outcome: "completed" }],
        calls: [{ key: "k", name: "step", state: "done", status: "success", started_at: at(2), ended_at: at(4) }],
      }),
      0,
    );
    expect(length).toBe(10_000);
    expect(gaps).toEqual([]);
    expect(bars.map((bar) => [bar.kind, bar.row, bar.from, bar.to])).toEqual([
      ["attempt", 0, 0, 10_000],
      ["call", 1, 2_000, 4_000],
    ]);
  });

  it("folds the hours in which nothing ran", () => {
    const { gaps, length, bars } = layout(
      turn({
        ended_at: at(7_202),
        attempts: [
          { number: 1, started_at: at(0), ended_at: at(1), outcome: "parked" },
          { number: 2, started_at: at(7_201), ended_at: at(7_202), outcome: "completed" },
        ],
      }),
      0,
    );
    expect(gaps).toHaveLength(1);
    expect(gaps[0]?.milliseconds).toBe(7_200_000);
    expect(length).toBeLessThan(3_000);
    expect(bars[1]?.from).toBeGreaterThan(bars[0]?.to ?? 0);
  });

  it("is never negative where clocks disagree, and grows while the turn lives", () => {
    const running = turn({
      ended_at: null,
      attempts: [{ number: 1, started_at: at(1), ended_at: null, outcome: null }],
      calls: [{ key: "k", name: "s", state: "done", status: "success", started_at: at(3), ended_at: at(2) }],
    });
    const early = layout(running, Date.parse(at(4)));
    const late = layout(running, Date.parse(at(5)));
    expect(early.bars.every((bar) => bar.to >= bar.from)).toBe(true);
    expect(late.length).toBeGreaterThan(early.length);
  });
});

describe("the server's numbers", () => {
  it("are read from its text", () => {
    const metrics = parseMetrics('# HELP x y\nperdure_turns{status="running"} 2.0\nperdure_database_bytes 4096.0\n');
    expect(metrics.get("perdure_database_bytes")).toBe(4096);
    expect(turnCounts(metrics)).toEqual([["running", 2]]);
  });
});
