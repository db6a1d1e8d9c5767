import { describe, expect, it, vi } from "vitest";
import type { LineState } from "./connection";
import { FakeLocks } from "./locks.fake";
import { type Channel, type Shared, share } from "./share";
import type { SseEvent } from "./sse";

class Air {
  private readonly channels = new Set<Channel>();

  tune = (): Channel => {
    const channel: Channel = {
      onmessage: null,
      postMessage: (note) => {
        for (const other of this.channels) if (other !== channel) other.onmessage?.({ data: note } as MessageEvent);
      },
      close: () => this.channels.delete(channel),
    };
    this.channels.add(channel);
    return channel;
  };
}

class Ids implements Shared {
  seen: string[] = [];
  line: LineState = "connecting";
  cursor = () => this.seen.at(-1);
  save = () => JSON.stringify(this.seen);
  receive(events: readonly SseEvent[]): void {
    this.seen.push(...events.map((each) => each.id ?? ""));
  }
  tell(line: LineState): void {
    this.line = line;
  }
  restore(saved: string): void {
    this.seen = JSON.parse(saved);
  }
}

class Browser {
  private readonly locks = new FakeLocks();
  private readonly air = new Air();
  leading: Shared[] = [];
  startedAfter: (string | undefined)[] = [];

  woken = 0;

  tab() {
    const ids = new Ids();
    const end = new AbortController();
    const nudge = new EventTarget();
    const done = share({
      name: "c",
      shared: ids,
      lead: async (shared) => {
        this.startedAfter.push(shared.cursor());
        this.leading.push(shared);
        shared.tell("live");
      },
      signal: end.signal,
      locks: this.locks.manager(),
      channel: this.air.tune,
      nudge,
      wake: () => {
        this.woken += 1;
      },
    });
    const close = () => {
      end.abort();
      return done;
    };
    return { ids, close, nudge };
  }

  say(...ids: string[]): void {
    this.leading.at(-1)?.receive(ids.map((id) => ({ event: "token", data: "", id })));
  }
}

describe("tabs of one browser", () => {
  it("read the server once, and all show the same", async () => {
    const browser = new Browser();
    const tabs = Array.from({ length: 8 }, () => browser.tab());
    await vi.waitFor(() => expect(browser.leading).toHaveLength(1));
    browser.say("1", "2");
    browser.say("3");
    for (const { ids } of tabs) expect(ids.seen).toEqual(["1", "2", "3"]);
    await Promise.all(tabs.map((tab) => tab.close()));
  });

  it("give what was before to a tab that comes later", async () => {
    const browser = new Browser();
    const first = browser.tab();
    await vi.waitFor(() => expect(browser.leading).toHaveLength(1));
    browser.say("1", "2");
    const second = browser.tab();
    await vi.waitFor(() => expect(second.ids.seen).toEqual(["1", "2"]));
    expect(second.ids.line).toBe("live");
    await Promise.all([first.close(), second.close()]);
  });

  it("go on after the last event when the leader is closed", async () => {
    const browser = new Browser();
    const first = browser.tab();
    await vi.waitFor(() => expect(browser.leading).toHaveLength(1));
    const second = browser.tab();
    browser.say("1", "2");
    await first.close();
    await vi.waitFor(() => expect(browser.leading).toHaveLength(2));
    expect(browser.startedAfter).toEqual([undefined, "2"]);
    browser.say("3");
    expect(second.ids.seen).toEqual(["1", "2", "3"]);
    await second.close();
  });

  it("wake the one that leads when a person asks in another", async () => {
    const browser = new Browser();
    const first = browser.tab();
    await vi.waitFor(() => expect(browser.leading).toHaveLength(1));
    const second = browser.tab();
    const third = browser.tab();
    await third.close();
    second.nudge.dispatchEvent(new Event("ask"));
    third.nudge.dispatchEvent(new Event("ask"));
    expect(browser.woken).toBe(1);
    await Promise.all([first.close(), second.close()]);
  });

  it("ask for everything when something was missed", async () => {
    const browser = new Browser();
    const first = browser.tab();
    await vi.waitFor(() => expect(browser.leading).toHaveLength(1));
    const second = browser.tab();
    browser.say("1");
    second.ids.seen = [];
    browser.say("2");
    await vi.waitFor(() => expect(second.ids.seen).toEqual(["1", "2"]));
    await Promise.all([first.close(), second.close()]);
  });
});
