import { describe, expect, it } from "vitest";
import type { TurnOfConversation, TurnReply, TurnSummary } from "../api/schema";
import { EMPTY, fold } from "../fold/fold";
import type { Frame } from "../fold/frames";
import { currentTurn, detailed, turnsOf } from "./turns";

const turn = (id: string, status: TurnSummary["status"], more: Partial<TurnOfConversation> = {}) =>
  ({ id, status, attempt_count: 1, usage: {}, reason: null, error: null, ...more }) as TurnOfConversation;
const frame = (event: string, more: object = {}): Frame =>
  ({ event, seq: 1, conversation: "c", turn: "a", attempt: 1, at: "", ...more }) as unknown as Frame;
const said = (...turns: TurnOfConversation[]) => turns.map(({ id, status }) => `${id} ${status}`);

describe("the turns of a conversation", () => {
  it("are told over when one ends", () => {
    const ended = fold(EMPTY, [frame("end", { status: "cancelled" })]);
    expect(said(...turnsOf("c", [turn("a", "running"), turn("b", "waiting")], ended, []))).toEqual([
      "a cancelled",
      "b waiting",
    ]);
  });

  it("have their failure before they are read again", () => {
    const failed = frame("chat-error", {
      status: "failed",
      code: "LIMIT_REACHED",
      reason: "token_limit",
      message: "m",
    });
    const [found] = turnsOf("c", [turn("a", "running")], fold(EMPTY, [failed]), []);
    expect(found).toMatchObject({
      status: "failed",
      reason: "token_limit",
      error: { code: "LIMIT_REACHED", message: "m" },
    });
  });

  it("have one that was accepted, and one that is told of, before they can be read: both can be stopped", () => {
    const sent = [{ turn: "b", text: "hi", status: "queued" as const }];
    expect(said(...turnsOf("c", [turn("a", "completed")], EMPTY, sent))).toEqual(["a completed", "b queued"]);
    const streams = fold(EMPTY, [frame("token", { turn: "b", message_id: "m", text: "x" })]);
    expect(said(...turnsOf("c", [turn("a", "completed")], streams, sent))).toEqual(["a completed", "b running"]);
    expect(said(...turnsOf("c", [turn("b", "waiting")], streams, sent))).toEqual(["b running"]);
  });

  it("show what a turn used as soon as its details tell", () => {
    const detail = { usage: { input_tokens: 5, output_tokens: 2 }, cancel_requested_at: "now" } as unknown as TurnReply;
    expect(detailed(turn("a", "parked"), detail)).toMatchObject({
      usage: { input_tokens: 5, output_tokens: 2 },
      cancel_requested_at: "now",
      status: "parked",
    });
    const read = turn("a", "completed", { usage: { input_tokens: 9, output_tokens: 9 }, cancel_requested_at: null });
    expect(detailed(read, detail)).toEqual(read);
    expect(detailed(read, undefined)).toBe(read);
  });
});

describe("the current turn", () => {
  it("is the active one, else the last that began", () => {
    const waits = turn("c", "waiting", { attempt_count: 0 });
    expect(currentTurn([turn("a", "completed"), turn("b", "parked"), waits])?.id).toBe("b");
    expect(currentTurn([turn("a", "completed"), turn("b", "failed")])?.id).toBe("b");
    expect(currentTurn([turn("a", "completed"), turn("b", "cancelled", { attempt_count: 0 })])?.id).toBe("a");
    expect(currentTurn([])).toBeUndefined();
  });
});
