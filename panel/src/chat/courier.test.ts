// @vitest-environment jsdom
import { describe, expect, it } from "vitest";
import { ApiError } from "../api/client";
import type { AcceptedReply } from "../api/schema";
import { Courier, type Letter } from "./courier";

const letter = (key: string, conversation: string | null = "c"): Letter => ({
  key,
  conversation,
  agent: null,
  text: key,
  request: { message: key },
});
const accepted: AcceptedReply = { conversation: "c", turn: "t", status: "queued" };
const down = new ApiError(0, { code: "UNREACHABLE", message: "" });
const signedOut = new ApiError(401, { code: "UNAUTHORIZED", message: "no" });
const refused = new ApiError(400, { code: "BAD_REQUEST", message: "no" });

/** A server that answers each request with the next of `answers`; the last one again and again. */
function house(answers: (ApiError | AcceptedReply)[], kept: Letter[] = []) {
  const log: string[] = [];
  let waiting: (() => void)[] = [];
  let stored = kept;
  const courier = new Courier({
    deliver: async ({ key }) => {
      log.push(key);
      const answer = answers.length > 1 ? answers.shift() : answers[0];
      if (answer instanceof ApiError || !answer) throw answer;
      return answer;
    },
    kept: {
      read: () => stored,
      write: (letters) => {
        stored = letters;
      },
    },
    wait: () => new Promise((resolve) => waiting.push(resolve)),
  });
  const settled = async () => {
    for (let n = 0; n < 20; n += 1) await Promise.resolve();
  };
  const wake = async () => {
    const due = waiting;
    waiting = [];
    for (const each of due) each();
    await settled();
  };
  return { courier, log, wake, settled, stored: () => stored.map((each) => each.key) };
}

describe("a message on its way", () => {
  it("is tried until a server answers, with the same key, and shown all the while", async () => {
    const { courier, log, wake, settled, stored } = house([down, signedOut, accepted]);
    courier.send(letter("a"));
    expect(courier.snapshot()).toMatchObject([{ key: "a", hold: null }]);
    await settled();
    expect(courier.snapshot()).toMatchObject([{ key: "a", hold: "server" }]);
    expect(stored()).toEqual(["a"]);
    await wake();
    expect(courier.snapshot()).toMatchObject([{ key: "a", hold: "sign-in" }]);
    await wake();
    expect(log).toEqual(["a", "a", "a"]);
    expect([courier.snapshot(), stored()]).toEqual([[], []]);
  });

  it("goes on after a reload", async () => {
    const { courier, log, settled } = house([accepted], [letter("a"), letter("b", null)]);
    expect(courier.snapshot().map((each) => each.key)).toEqual(["a", "b"]);
    courier.resume();
    await settled();
    expect(log.toSorted()).toEqual(["a", "b"]);
    expect(courier.snapshot()).toEqual([]);
  });

  it("comes after those that were written before it, and not after those of another conversation", async () => {
    const { courier, log, wake, settled } = house([down, accepted]);
    courier.send(letter("a"));
    courier.send(letter("b"));
    courier.send(letter("x", "d"));
    await settled();
    expect(log).toEqual(["a", "x"]);
    await wake();
    expect(log).toEqual(["a", "x", "a", "b"]);
  });

  it("tells who listens what became of it, and keeps why it was not taken until the next one", async () => {
    const { courier, settled } = house([refused, accepted]);
    const heard: string[] = [];
    courier.listen({
      onAccepted: ({ key }, { turn }) => heard.push(`${key} is ${turn}`),
      onRefused: ({ key }) => heard.push(`${key} is refused`),
    });
    courier.send(letter("a"));
    await settled();
    expect([courier.refusal("c"), courier.refusal("d"), courier.snapshot()]).toEqual([refused, null, []]);
    courier.send(letter("b"));
    expect(courier.refusal("c")).toBeNull();
    await settled();
    expect(heard).toEqual(["a is refused", "b is t"]);
  });
});
