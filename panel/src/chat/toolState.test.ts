// @vitest-environment jsdom
import { describe, expect, it } from "vitest";
import type { CallReply, CardReply, TurnReply } from "../api/schema";
import type { Message } from "../fold/frames";
import { toolView } from "./toolState";

const call = { id: "x", name: "restart", args: { name: "web" } };
const record = (more: Partial<CallReply> = {}) =>
  ({
    id: "x",
    key: "k",
    name: "restart",
    state: "done",
    status: "success",
    starts: 1,
    attempt: 1,
    ...more,
  }) as CallReply;
const card = (more: Partial<CardReply> = {}) =>
  ({
    id: "c",
    kind: "approval",
    state: "opened",
    tool: "restart",
    arguments: { name: "web" },
    key: "k",
    ...more,
  }) as CardReply;
const turn = (more: Partial<TurnReply> = {}) =>
  ({ status: "running", calls: [], cards: [], attempts: [], ...more }) as unknown as TurnReply;
const result = (status?: string) => ({ id: "r", role: "tool", content: "", ...(status && { status }) }) as Message;

describe("a tool card", () => {
  it.each([
    ["not started", undefined, turn(), "pending"],
    ["running", undefined, turn({ calls: [record({ state: "running", status: null })] }), "running"],
    ["waiting for a person", undefined, turn({ status: "parked", cards: [card()] }), "asked"],
    ["waiting for an answer to its own question", undefined, turn({ calls: [record({ state: "paused" })] }), "asked"],
    ["of unknown outcome", undefined, turn({ status: "failed", calls: [record({ state: "unknown" })] }), "unknown"],
    ["recorded, its message not yet there", undefined, turn({ calls: [record()] }), "done"],
    ["never run in a turn that ended", undefined, turn({ status: "cancelled" }), "stopped"],
    ["answered", result("success"), turn(), "done"],
    ["answered with an error", result("error"), turn(), "error"],
    ["denied", result("denied"), turn(), "denied"],
    ["answered, of a turn that is not known", result(), undefined, "done"],
  ] as const)("says that a call is %s", (_what, message, of, state) => {
    expect(toolView(call, 0, message, of).state).toBe(state);
  });

  it("finds the n-th call of an id that came again", () => {
    const calls = [record({ key: "k1" }), record({ key: "k2", state: "running" })];
    expect(toolView(call, 1, undefined, turn({ calls })).record?.key).toBe("k2");
  });

  it("marks what ran before the restart, and what ran again", () => {
    const attempts = [{ number: 1, outcome: "died" }] as TurnReply["attempts"];
    const before = toolView(call, 0, result(), turn({ attempts, calls: [record()] }));
    expect([before.ranBefore, before.rerun]).toEqual([true, 0]);
    const again = toolView(call, 0, result(), turn({ attempts, calls: [record({ starts: 2, attempt: 2 })] }));
    expect([again.ranBefore, again.rerun]).toEqual([false, 2]);
  });

  it("does not take a decision's attempt for a restart", () => {
    const attempts = [{ number: 1, outcome: "parked" }] as TurnReply["attempts"];
    expect(toolView(call, 0, result(), turn({ attempts, calls: [record()] })).ranBefore).toBe(false);
  });

  it("shows the card of other arguments with no call", () => {
    expect(toolView(call, 0, undefined, turn({ cards: [card({ arguments: { name: "db" } })] })).card).toBeUndefined();
  });
});
