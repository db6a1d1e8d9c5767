import { describe, expect, it } from "vitest";
import type { CallReply, CardReply, TurnReply } from "../api/schema";
import type { Message } from "../fold/frames";
import { toolView } from "./toolState";

const call = { id: "x", name: "restart", args: { name: "web" } };
const place = { message: "m", call, nth: 0 };
const record = (more: Partial<CallReply> = {}) =>
  ({
    id: "x",
    message_id: "m",
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
    call_id: "x",
    message_id: "m",
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
    ["not yet known of", undefined, undefined, "unread"],
    ["never started, as its message says", result("not_started"), turn({ status: "cancelled" }), "never"],
    ["stopped without an effect, as its message says", result("stopped"), turn({ status: "cancelled" }), "stopped"],
    ["of unknown outcome, as its message says", result("unknown"), turn({ status: "cancelled" }), "unknown"],
    [
      "of unknown outcome, as the ledger says",
      result("error"),
      turn({ calls: [record({ state: "unknown" })] }),
      "unknown",
    ],
    ["seen to happen by a person", result("success"), turn({ calls: [record({ state: "unknown" })] }), "done"],
    ["never started, as its closed card says", result("error"), turn({ cards: [card({ state: "closed" })] }), "never"],
    [
      "an error of a tool that a person let run",
      result("error"),
      turn({ cards: [card({ state: "decided" })] }),
      "error",
    ],
  ] as const)("says that a call is %s", (_what, message, of, state) => {
    expect(toolView(place, message, of).state).toBe(state);
  });

  it("says that a call runs once the stream has told so, also where the ledger cannot be read", () => {
    expect(toolView(place, undefined, undefined, { started: true }).state).toBe("running");
    expect(toolView(place, undefined, turn(), { started: true }).state).toBe("running");
  });

  it("was never started in a turn that ended without a start in the ledger, where the ledger has them all", () => {
    const state = (more: { started?: boolean; covered?: boolean }, calls: CallReply[] = []) =>
      toolView(place, undefined, turn({ status: "failed", calls }), more).state;
    expect(state({ covered: true })).toBe("never");
    expect(state({ covered: false })).toBe("stopped");
    expect(state({ covered: true, started: true })).toBe("stopped");
    expect(state({ covered: true }, [record({ state: "running" })])).toBe("stopped");
  });

  it("finds the call of its own message where an id came again, and the n-th of one message", () => {
    const calls = [record({ key: "k1", message_id: "l" }), record({ key: "k2" }), record({ key: "k3" })];
    expect(toolView(place, undefined, turn({ calls })).record?.key).toBe("k2");
    expect(toolView({ ...place, nth: 1 }, undefined, turn({ calls })).record?.key).toBe("k3");
  });

  it("finds the card of a call that never started by the call, not by what it asks", () => {
    const cards = [card({ id: "1", key: "k1", message_id: "l" }), card({ id: "2", arguments: { name: "db" } })];
    expect(toolView(place, undefined, turn({ cards })).card?.id).toBe("2");
  });

  it("takes what the ledger has where a graph does not tell the message", () => {
    expect(toolView(place, undefined, turn({ calls: [record({ message_id: "" })] })).record?.key).toBe("k");
    expect(toolView({ ...place, message: "" }, result(), turn({ calls: [record()] })).record?.key).toBe("k");
  });

  it("marks what ran before the restart, and what ran again", () => {
    const attempts = [{ number: 1, outcome: "died" }] as TurnReply["attempts"];
    const before = toolView(place, result(), turn({ attempts, calls: [record()] }));
    expect([before.ranBefore, before.rerun]).toEqual([true, 0]);
    const again = toolView(place, result(), turn({ attempts, calls: [record({ starts: 2, attempt: 2 })] }));
    expect([again.ranBefore, again.rerun]).toEqual([false, 2]);
  });

  it("does not take a decision's attempt for a restart", () => {
    const attempts = [{ number: 1, outcome: "parked" }] as TurnReply["attempts"];
    expect(toolView(place, result(), turn({ attempts, calls: [record()] })).ranBefore).toBe(false);
  });

  it("shows the card of another call with no call", () => {
    expect(toolView(place, undefined, turn({ cards: [card({ call_id: "y" })] })).card).toBeUndefined();
  });
});
