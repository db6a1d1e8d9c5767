// @vitest-environment jsdom
import { describe, expect, it } from "vitest";
import { ApiError } from "./client";
import { holdOf } from "./held";
import { reached, reachOf } from "./reach";
import type { AgentReply, AgentsReply, Reach } from "./schema";

const agent = (name: string, reach: Reach): AgentReply => ({
  name,
  input: "message",
  model: null,
  default: false,
  problems: [],
  uncovered_tools: [],
  reach,
});
const known: AgentsReply = { items: [agent("shop", "reachable"), agent("helper", "unreachable")] };

describe("whether an agent can be asked", () => {
  it("is what was told last, of the one that is named", () => {
    const after = reached(known, { agent: "shop", reach: "disconnected" });
    expect(after?.items.map((each) => each.reach)).toEqual(["disconnected", "unreachable"]);
    expect(after?.items[1]).toBe(known.items[1]);
    expect(known.items[0]?.reach).toBe("reachable");
  });

  it("is not asked of one that was forgotten", () => {
    const after = reached(known, { agent: "helper", reach: "forgotten" });
    expect(after?.items.map((each) => each.name)).toEqual(["shop"]);
    expect(known.items).toHaveLength(2);
  });

  it("is no news when it is known, and makes a new agent be read", () => {
    expect(reached(known, { agent: "helper", reach: "unreachable" })).toBe(known);
    expect(reached(known, { agent: "third", reach: "reachable" })).toBeUndefined();
    expect(reached(known, { agent: "third", reach: "forgotten" })).toBe(known);
  });

  it("is as it was read where the server does not name the agent, and no question where there is nothing to read", () => {
    expect(reachOf(known, "helper", "reachable")).toBe("unreachable");
    expect(reachOf(known, "other", "disconnected")).toBe("disconnected");
    expect(reachOf(undefined, "shop", "unreachable")).toBe("unreachable");
    expect(reachOf(undefined, undefined)).toBe("reachable");
  });
});

describe("what is tried again", () => {
  const refused = (status: number, code: string) => new ApiError(status, { code, message: "…" });

  it.each([
    [refused(503, "AGENT_UNAVAILABLE"), "agent"],
    [refused(503, "NOT_READY"), "server"],
    [refused(0, "UNREACHABLE"), "server"],
    [refused(401, "UNAUTHORIZED"), "sign-in"],
    [refused(409, "TURN_IN_PROGRESS"), null],
    [new TypeError("a fault"), null],
  ])("waits for who did not answer: %s", (error, hold) => {
    expect(holdOf(error)).toBe(hold);
  });
});
