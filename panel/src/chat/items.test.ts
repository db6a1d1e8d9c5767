import { describe, expect, it } from "vitest";
import type { EventReply, TurnOfConversation, TurnReply, TurnSummary } from "../api/schema";
import { EMPTY, fold } from "../fold/fold";
import type { Frame, Message, MessageFrame } from "../fold/frames";
import { recordedAttempts } from "./breaks";
import { type Item, itemsOf } from "./items";

const user = (turn: string, content = "hi"): Message => ({ id: `msg-${turn}`, role: "user", content });
const said = (id: string, content: string, more: Partial<Message> = {}): Message => ({
  id,
  role: "assistant",
  content,
  ...more,
});
const result = (id: string, call: string, content = "ok"): Message => ({
  id,
  role: "tool",
  content,
  tool_call_id: call,
});
const turn = (
  id: string,
  status: TurnSummary["status"],
  attempt_count = 1,
  input: TurnOfConversation["input"] = null,
) => ({ id, status, attempt_count, input }) as TurnOfConversation;

let seq = 0;
function frame(event: string, turn: string, more: object, attempt = 1): Frame {
  seq += 1;
  return { event, seq, conversation: "c", turn, attempt, at: "", ...more } as Frame;
}
const message = (turn: string, message: Message, attempt = 1) => frame("message", turn, { message }, attempt);
const token = (turn: string, id: string, text: string, attempt = 1) =>
  frame("token", turn, { message_id: id, text }, attempt);

function show(items: readonly Item[]): string[] {
  return items.map((item) => {
    if (item.kind === "user" || item.kind === "assistant" || item.kind === "reasoning" || item.kind === "unsent")
      return `${item.kind}: ${item.text}`;
    if (item.kind === "call") return `call: ${item.call.name} → ${item.result?.content ?? "…"}`;
    return item.kind === "divider" ? `--- ${item.why}` : `end ${item.turn}`;
  });
}

const nothing = {
  messages: [],
  turns: [],
  fold: EMPTY,
  sent: [],
  unsent: [],
  details: new Map(),
  recorded: new Map(),
};

describe("the transcript", () => {
  it("shows what is stored", () => {
    const read = { messages: [user("a"), said("1", "hello")], turns: [turn("a", "completed")] };
    expect(show(itemsOf({ ...nothing, ...read }))).toEqual(["user: hi", "assistant: hello", "end a"]);
  });

  it("is the same from the stream as from the store", () => {
    const messages = [
      user("a"),
      said("1", "", { tool_calls: [{ id: "x", name: "step", args: {} }] }),
      result("2", "x"),
      said("3", "done"),
    ];
    const turns = [turn("a", "completed")];
    const stored = itemsOf({ ...nothing, messages, turns });
    const frames = messages.map((each) => message("a", each));
    const streamed = itemsOf({ ...nothing, messages: [], turns, fold: fold(EMPTY, frames) });
    const half = itemsOf({
      ...nothing,
      messages: messages.slice(0, 2),
      turns,
      fold: fold(EMPTY, frames),
    });
    expect(streamed).toEqual(stored);
    expect(half).toEqual(stored);
  });

  it("shows text that streams, until its message is there, once", () => {
    const turns = [turn("a", "running")];
    const streaming = fold(EMPTY, [message("a", user("a")), token("a", "1", "hel"), token("a", "1", "lo")]);
    const shown = itemsOf({ ...nothing, messages: [user("a")], turns, fold: streaming });
    expect(show(shown)).toEqual(["user: hi", "assistant: hello", "end a"]);
    const stored = { messages: [user("a"), said("1", "hello!")], turns };
    expect(show(itemsOf({ ...nothing, ...stored, fold: streaming }))).toEqual([
      "user: hi",
      "assistant: hello!",
      "end a",
    ]);
  });

  it("shows what a model thought above what it said, also where it said nothing", () => {
    const tool_calls = [{ id: "x", name: "step", args: {} }];
    const messages = [user("a"), said("1", "", { reasoning: "hm", tool_calls }), said("2", "42", { reasoning: "so" })];
    const shown = show(itemsOf({ ...nothing, messages, turns: [turn("a", "completed")] }));
    expect(shown).toEqual(["user: hi", "reasoning: hm", "call: step → …", "reasoning: so", "assistant: 42", "end a"]);
  });

  it("keeps the key of a message when its text is complete", () => {
    const live = itemsOf({ ...nothing, fold: fold(EMPTY, [token("a", "1", "hel")]) });
    const whole = itemsOf({ ...nothing, fold: fold(EMPTY, [message("a", said("1", "hello"))]) });
    expect(live[0]?.key).toBe(whole[0]?.key);
  });

  it("gives each call its own result where ids come again", () => {
    const call = { id: "call_0", name: "step", args: {} };
    const messages = [
      user("a"),
      said("1", "", { tool_calls: [call] }),
      result("2", "call_0", "first"),
      said("3", "", { tool_calls: [call] }),
      result("4", "call_0", "second"),
    ];
    const items = itemsOf({ ...nothing, messages, turns: [turn("a", "running")] });
    expect(show(items)).toEqual(["user: hi", "call: step → first", "call: step → second", "end a"]);
    expect(items.flatMap((item) => (item.kind === "call" ? [item.nth] : []))).toEqual([0, 0]);
    expect(items.flatMap((item) => (item.kind === "call" ? [item.message] : []))).toEqual(["1", "3"]);
    expect(new Set(items.map((item) => item.key)).size).toBe(items.length);
  });

  it("tells calls apart that came with one id in one message", () => {
    const call = { id: "call_0", name: "step", args: {} };
    const messages = [user("a"), said("1", "", { tool_calls: [call, call] })];
    const items = itemsOf({ ...nothing, messages, turns: [turn("a", "running")] });
    expect(items.flatMap((item) => (item.kind === "call" ? [item.nth] : []))).toEqual([0, 1]);
    expect(new Set(items.map((item) => item.key)).size).toBe(items.length);
  });

  it("shows a result that belongs to no call", () => {
    const messages = [user("a"), { ...result("2", "gone", "late"), name: "step" }];
    const items = itemsOf({ ...nothing, messages, turns: [turn("a", "completed")] });
    expect(show(items)).toContain("call: step → late");
  });

  it("shows what was sent until the thread has it", () => {
    const sent = [{ turn: "b", text: "next", status: "waiting" as const }];
    const turns = [turn("a", "running"), turn("b", "waiting")];
    const before = itemsOf({ ...nothing, messages: [user("a")], turns, sent });
    expect(show(before)).toEqual(["user: hi", "end a", "user: next", "end b"]);
    const after = itemsOf({ ...nothing, messages: [user("a"), user("b", "next")], turns, sent });
    expect(show(after)).toEqual(["user: hi", "end a", "user: next", "end b"]);
  });

  it("shows what waits after a reload, and once where this page sent it", () => {
    const waits = [turn("b", "waiting", 0, { message: "next" }), turn("c", "waiting", 0, { input: { n: 1 } })];
    const read = { messages: [user("a")], turns: [turn("a", "running"), ...waits] };
    const shown = ["user: hi", "end a", "user: next", "end b", 'user: {\n  "n": 1\n}', "end c"];
    expect(show(itemsOf({ ...nothing, ...read }))).toEqual(shown);
    expect(
      show(itemsOf({ ...nothing, ...read, sent: [{ turn: "b", text: "next", status: "waiting" as const }] })),
    ).toEqual(shown);
  });

  it("draws a line where a later attempt went on after a restart, not after a decision", () => {
    const attempts = (outcome: string) => ({ attempts: [{ number: 1, outcome }] }) as TurnReply;
    const frames = [message("a", user("a")), message("a", said("1", "one")), message("a", said("2", "two"), 2)];
    const shown = (outcome: string) =>
      show(itemsOf({ ...nothing, fold: fold(EMPTY, frames), details: new Map([["a", attempts(outcome)]]) }));
    expect(shown("died")).toEqual(["user: hi", "assistant: one", "--- restarted", "assistant: two", "end a"]);
    expect(shown("retried")).toContain("--- retried");
    expect(shown("parked")).not.toContain("--- restarted");
  });

  describe("has that line at the same place while a person watches and after a reload", () => {
    const asks = (id: string, content = "") => said(`m${id}`, content, { tool_calls: [{ id, name: id, args: {} }] });
    const detailOf = (outcomes: string[], status = "completed") =>
      ({
        status,
        calls: [],
        attempts: outcomes.map((outcome, n) => ({ number: n + 1, outcome })),
      }) as unknown as TurnReply;

    interface Story {
      /** What was committed, and in which attempt. */
      told: [Message, number][];
      outcomes: string[];
      shows: string[];
    }

    const stories: Record<string, Story> = {
      "an answer that was begun anew": {
        told: [
          [user("a"), 1],
          [said("1", "two"), 2],
        ],
        outcomes: ["died", "completed"],
        shows: ["user: hi", "--- restarted", "assistant: two", "end a"],
      },
      "a step that was done before": {
        told: [
          [user("a"), 1],
          [asks("x"), 1],
          [result("1", "x"), 1],
          [said("2", "two"), 2],
        ],
        outcomes: ["died", "completed"],
        shows: ["user: hi", "call: x → ok", "--- restarted", "assistant: two", "end a"],
      },
      "a call that had been asked for and had not begun": {
        told: [
          [user("a"), 1],
          [asks("x", "I look."), 1],
          [result("1", "x"), 2],
          [said("2", "two"), 2],
        ],
        outcomes: ["died", "completed"],
        shows: ["user: hi", "assistant: I look.", "call: x → ok", "--- restarted", "assistant: two", "end a"],
      },
      "a second restart in a call of the second attempt": {
        told: [
          [user("a"), 1],
          [asks("x"), 1],
          [result("1", "x"), 1],
          [asks("y"), 2],
          [result("2", "y"), 3],
          [said("3", "three"), 3],
        ],
        outcomes: ["died", "released", "completed"],
        shows: [
          "user: hi",
          "call: x → ok",
          "--- restarted",
          "call: y → ok",
          "--- restarted",
          "assistant: three",
          "end a",
        ],
      },
      "an answer that was whole when the process died": {
        told: [
          [user("a"), 1],
          [said("1", "one"), 1],
        ],
        outcomes: ["died", "completed"],
        shows: ["user: hi", "assistant: one", "--- restarted", "end a"],
      },
      "a turn that was given up": {
        told: [[user("a"), 1]],
        outcomes: ["died", "died", "died"],
        shows: ["user: hi", "--- restarted", "end a"],
      },
      "an answer that was tried again": {
        told: [
          [user("a"), 1],
          [said("1", "two"), 2],
        ],
        outcomes: ["retried", "completed"],
        shows: ["user: hi", "--- retried", "assistant: two", "end a"],
      },
    };

    it.each(Object.entries(stories))("%s", (_name, { told, outcomes, shows }) => {
      const details = new Map([["a", detailOf(outcomes)]]);
      const turns = [turn("a", "completed", outcomes.length)];
      const frames = told.map(([each, attempt]) => message("a", each, attempt));
      const ending = frame("end", "a", { status: "completed" }, outcomes.length);
      const running = itemsOf({ ...nothing, turns, details, fold: fold(EMPTY, frames) });
      const watched = itemsOf({ ...nothing, turns, details, fold: fold(EMPTY, [...frames, ending]) });
      const events = frames.map((each) => {
        const { seq, event, attempt, at, ...data } = each as MessageFrame;
        return { seq, event, attempt, at, data } as unknown as EventReply;
      });
      const recorded = new Map([["a", recordedAttempts("a", events)]]);
      const stored = { messages: told.map(([each]) => each), turns, details, recorded };
      expect(show(running)).toEqual(shows);
      expect(watched).toEqual(running);
      expect(itemsOf({ ...nothing, ...stored })).toEqual(watched);
      // Of the last turn the stream tells its end, and nothing else.
      expect(itemsOf({ ...nothing, ...stored, fold: fold(EMPTY, [ending]) })).toEqual(watched);
    });

    it("and none until it is known where it belongs", () => {
      const read = { messages: [user("a"), said("1", "one")], turns: [turn("a", "completed", 2)] };
      const details = new Map([["a", detailOf(["died", "completed"])]]);
      expect(show(itemsOf({ ...nothing, ...read, details }))).not.toContain("--- restarted");
    });

    it("and before the last word where retention has removed the events", () => {
      const read = { messages: [user("a"), asks("x"), result("1", "x"), said("2", "two")] };
      const details = new Map([["a", detailOf(["died", "completed"])]]);
      const recorded = new Map([["a", new Map<string, number>()]]);
      const turns = [turn("a", "completed", 2)];
      const shown = ["user: hi", "call: x → ok", "--- restarted", "assistant: two", "end a"];
      expect(show(itemsOf({ ...nothing, ...read, turns, details, recorded }))).toEqual(shown);
    });
  });

  it("draws no line below a turn whose process died and that nothing has taken up yet", () => {
    const died = { status: "queued", calls: [], attempts: [{ number: 1, outcome: "died" }] } as unknown as TurnReply;
    const watched = fold(EMPTY, [message("a", user("a")), message("a", said("1", "one"))]);
    const details = new Map([["a", died]]);
    expect(show(itemsOf({ ...nothing, turns: [turn("a", "queued")], fold: watched, details }))).toEqual([
      "user: hi",
      "assistant: one",
      "end a",
    ]);
  });

  it("shows last what no server has answered yet", () => {
    const unsent = [{ key: "k", conversation: "c", agent: null, text: "are you there?", request: {}, hold: null }];
    const items = itemsOf({ ...nothing, messages: [user("a")], turns: [turn("a", "completed")], unsent });
    expect(show(items)).toEqual(["user: hi", "end a", "unsent: are you there?"]);
  });

  it("knows a call as started once the stream has told so", () => {
    const messages = [user("a"), said("1", "", { tool_calls: [{ id: "x", name: "step", args: {} }] })];
    const frames = messages.map((each) => message("a", each));
    const started = (...more: Frame[]) =>
      itemsOf({ ...nothing, fold: fold(EMPTY, [...frames, ...more]) }).flatMap((each) =>
        each.kind === "call" ? [each.started] : [],
      );
    const trace = (message_id: string) =>
      frame("trace", "a", { node: "tools", name: "step", step: 1, phase: "call", call_id: "x", data: { message_id } });
    expect(started()).toEqual([false]);
    expect(started(trace("1"))).toEqual([true]);
    expect(started(trace("0"))).toEqual([false]);
  });

  it("drops streamed text that a reset takes back", () => {
    const frames = [
      message("a", user("a")),
      token("a", "1", "half an ans"),
      { event: "reset", conversation: "c", turn: "a", to_seq: 1, attempt: 2, reason: "recovered" } as Frame,
      message("a", user("a")),
      token("a", "9", "again", 2),
    ];
    expect(show(itemsOf({ ...nothing, fold: fold(EMPTY, frames) }))).toEqual(["user: hi", "assistant: again", "end a"]);
  });
});
