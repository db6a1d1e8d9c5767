import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { keepConnected, type LineState, SIGNED_OUT_MS, STALE_MS } from "./connection";
import { IDLE_MS, type SseEvent } from "./sse";

/** A server: each connection is answered by the next script. */
class Script {
  readonly cursors: (string | undefined)[] = [];
  readonly states: LineState[] = [];
  readonly events: SseEvent[] = [];
  readonly nudge = new EventTarget();
  private readonly end = new AbortController();
  private cursor: string | undefined;
  private readonly done: Promise<void>;

  constructor(answers: (() => Response | Promise<Response>)[]) {
    this.done = keepConnected({
      open: async (cursor, signal) => {
        this.cursors.push(cursor);
        const answer = answers.shift();
        return answer ? answer() : never(signal);
      },
      owner: {
        cursor: () => this.cursor,
        receive: (events) => {
          this.events.push(...events);
          for (const { id } of events) this.cursor = id ?? this.cursor;
        },
        tell: (state) => this.states.push(state),
      },
      signal: this.end.signal,
      nudge: this.nudge,
    });
  }

  async stop(): Promise<void> {
    this.end.abort();
    await vi.advanceTimersByTimeAsync(60_000);
    await this.done;
  }
}

function never(signal: AbortSignal): Promise<Response> {
  return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
}

function stream(text: string, ending: "close" | "abort" | "open" = "close"): () => Response {
  return () =>
    new Response(
      new ReadableStream<Uint8Array>({
        start(controller) {
          controller.enqueue(new TextEncoder().encode(text));
          if (ending === "close") controller.close();
        },
        pull(controller) {
          if (ending === "abort") controller.error(new TypeError("network"));
        },
      }),
    );
}

const TOKEN = 'event: token\ndata: {"seq":7}\nid: 7\n\n';

describe("a line", () => {
  beforeEach(() => vi.useFakeTimers());
  afterEach(() => vi.useRealTimers());

  it("is live although text never ceases to come", async () => {
    let clock: ReturnType<typeof setInterval> | undefined;
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        clock = setInterval(() => controller.enqueue(new TextEncoder().encode(TOKEN)), 50);
      },
    });
    const script = new Script([() => new Response(body)]);
    await vi.advanceTimersByTimeAsync(500);
    expect(script.states.at(-1)).toBe("catching-up");
    await vi.advanceTimersByTimeAsync(600);
    expect(script.states).toEqual(["connecting", "catching-up", "live"]);
    clearInterval(clock);
    await script.stop();
  });

  it("comes back after a clean end without a last word, after the last id", async () => {
    const script = new Script([stream(`retry: 1000\n\n${TOKEN}`), stream("retry: 1000\n\n", "open")]);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(script.cursors).toEqual([undefined, "7"]);
    expect(script.events.map((each) => each.event)).toEqual(["token"]);
    expect(script.states).toEqual(["connecting", "catching-up", "reconnecting", "catching-up", "live"]);
    await script.stop();
  });

  it("ends for good when the conversation is gone", async () => {
    const script = new Script([stream('event: gone\ndata: {"conversation":"c"}\n\n')]);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(script.states.at(-1)).toBe("gone");
    expect(script.cursors).toHaveLength(1);
    await script.stop();
  });

  it("rests when the server waits for a turn no more, until somebody asks", async () => {
    const told = 'event: chat-error\ndata: {"turn":"t","status":"running","code":"DEADLINE"}\n\n';
    const script = new Script([stream(`${TOKEN}${told}`), stream("retry: 1000\n\n", "open")]);
    await vi.advanceTimersByTimeAsync(7 * 86_400_000);
    expect(script.states.at(-1)).toBe("unfollowed");
    expect(script.cursors).toHaveLength(1);
    script.nudge.dispatchEvent(new Event("wake"));
    await vi.advanceTimersByTimeAsync(1_000);
    expect(script.cursors).toEqual([undefined, "7"]);
    expect(script.states.at(-1)).toBe("live");
    await script.stop();
  });

  it("takes an end with an id for what it is: the line comes back", async () => {
    const ended = 'event: chat-error\ndata: {"seq":8,"turn":"t","status":"failed"}\nid: 8\n\n';
    const script = new Script([stream(ended), stream("retry: 1000\n\n", "open")]);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(script.cursors).toEqual([undefined, "8"]);
    await script.stop();
  });

  it("ends for good at 404", async () => {
    const script = new Script([() => new Response("", { status: 404 })]);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(script.states).toEqual(["connecting", "missing"]);
    await script.stop();
  });

  it("goes on by itself once somebody has signed in again", async () => {
    const refused = () => new Response("", { status: 401 });
    const script = new Script([refused, refused, stream("")]);
    await vi.advanceTimersByTimeAsync(SIGNED_OUT_MS - 1);
    expect(script.states).toEqual(["connecting", "signed-out"]);
    await vi.advanceTimersByTimeAsync(SIGNED_OUT_MS + 2);
    expect(script.states).toContain("catching-up");
    await script.stop();
  });

  it("tells a restart from a broken line: the server hints once more before it cuts", async () => {
    const script = new Script([
      stream("retry: 1000\n\nretry: 1000\n\n", "abort"),
      stream("", "abort"),
      () => new Response("", { status: 503 }),
    ]);
    await vi.advanceTimersByTimeAsync(5_000);
    expect(script.states.filter((each) => each !== "catching-up")).toEqual([
      "connecting",
      "restarting",
      "reconnecting",
      "restarting",
    ]);
    await script.stop();
  });

  it("gives up a line on which nothing comes", async () => {
    const script = new Script([stream("retry: 1000\n\n", "open"), stream("retry: 1000\n\n", "open")]);
    await vi.advanceTimersByTimeAsync(IDLE_MS - 1);
    expect(script.cursors).toHaveLength(1);
    await vi.advanceTimersByTimeAsync(2_000);
    expect(script.cursors).toHaveLength(2);
    await script.stop();
  });

  it("waits longer each time, and not at all when it is woken", async () => {
    vi.spyOn(Math, "random").mockReturnValue(0.5);
    const refuse = () => Promise.reject(new TypeError("network"));
    const script = new Script(Array.from({ length: 12 }, () => refuse));
    await vi.advanceTimersByTimeAsync(30_000);
    const tried = script.cursors.length;
    expect(tried).toBeGreaterThan(3);
    expect(tried).toBeLessThan(10);
    await vi.advanceTimersByTimeAsync(5);
    const before = script.cursors.length;
    script.nudge.dispatchEvent(new Event("wake"));
    await vi.advanceTimersByTimeAsync(0);
    expect(script.cursors.length).toBe(before + 1);
    await script.stop();
  });

  it("makes a silent line anew when the page is looked at again, and keeps one that spoke", async () => {
    const script = new Script([stream("retry: 1000\n\n", "open"), stream("retry: 1000\n\n", "open")]);
    await vi.advanceTimersByTimeAsync(STALE_MS / 2);
    script.nudge.dispatchEvent(new Event("check"));
    await vi.advanceTimersByTimeAsync(STALE_MS);
    expect(script.cursors).toHaveLength(1);
    script.nudge.dispatchEvent(new Event("check"));
    await vi.advanceTimersByTimeAsync(1_000);
    expect(script.cursors).toHaveLength(2);
    await script.stop();
  });

  it("is cut when the network goes away", async () => {
    const script = new Script([stream("retry: 1000\n\n", "open")]);
    await vi.advanceTimersByTimeAsync(1_000);
    script.nudge.dispatchEvent(new Event("cut"));
    await vi.advanceTimersByTimeAsync(0);
    expect(script.states.at(-1)).toBe("reconnecting");
    await script.stop();
  });
});
