import { describe, expect, it } from "vitest";
import cases from "./cases.json";
import { EMPTY, type Fold, fold } from "./fold";
import { type Frame, parseFrame } from "./frames";

const PLACE = new Set(["seq", "conversation", "turn", "attempt", "at", "event"]);

function payload(frame: object | null): object | null {
  return frame && Object.fromEntries(Object.entries(frame).filter(([name]) => !PLACE.has(name)));
}

function comparable(state: Fold): object {
  return Object.fromEntries(
    [...state].map(([id, turn]) => [
      id,
      {
        messages: [...turn.messages],
        tokens: [...turn.tokens],
        traces: turn.traces.map(payload),
        approvals: [...turn.approvals].map(([card, frame]) => [card, payload(frame)]),
        ending: payload(turn.ending),
        seen: [...turn.seen].sort((a, b) => a - b),
      },
    ]),
  );
}

function frames(name: string): Frame[] {
  const found = cases.find((each) => each.name === name);
  if (!found) throw new Error(`There is no case ${name}.`);
  return framesOf(found);
}

function framesOf(written: (typeof cases)[number]): Frame[] {
  return written.frames
    .map((each) => parseFrame(each.event, JSON.stringify(each.data)))
    .filter((each) => each !== null);
}

describe("the fold", () => {
  it.each(cases.map((each) => [each.name, each] as const))("agrees with the server's on: %s", (_name, written) => {
    expect(comparable(fold(EMPTY, framesOf(written)))).toEqual(written.turns);
  });

  it.each(cases.map((each) => [each.name, each] as const))(
    "gives the same one frame at a time: %s",
    (_name, written) => {
      const frames = framesOf(written);
      const stepwise = frames.reduce<Fold>((state, frame) => fold(state, [frame]), EMPTY);
      expect(comparable(stepwise)).toEqual(comparable(fold(EMPTY, frames)));
    },
  );

  it("does not touch what it was given", () => {
    const spoken = frames("an answer");
    const before = fold(EMPTY, spoken.slice(0, 2));
    const kept = comparable(before);
    fold(before, spoken.slice(2));
    expect(comparable(before)).toEqual(kept);
  });

  it("keeps the objects of turns that nothing was said of", () => {
    const before = fold(EMPTY, frames("two turns side by side"));
    const after = fold(before, frames("cards and traces").slice(1, 2));
    expect(after.get("t2")).toBe(before.get("t2"));
    expect(after.get("t1")).not.toBe(before.get("t1"));
  });

  it("ignores a ping and kinds it does not know", () => {
    expect(parseFrame("ping", "{}")).toBeNull();
    expect(parseFrame("something-new", "not json")).toBeNull();
  });

  it("takes no ending from a gateway that does not wait any more", () => {
    const told = {
      conversation: "c",
      turn: "t",
      status: "running",
      code: "DEADLINE",
      reason: "deadline",
      message: "…",
    };
    expect(parseFrame("chat-error", JSON.stringify(told))).toBeNull();
    expect(() => parseFrame("chat-error", JSON.stringify({ ...told, code: "OTHER" }))).toThrow();
  });
});
