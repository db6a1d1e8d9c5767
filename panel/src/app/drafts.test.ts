// @vitest-environment jsdom
import { describe, expect, it } from "vitest";
import { Drafts, MOST_CHARACTERS, MOST_DRAFTS } from "./drafts";

function shelf() {
  let kept: [string, string][] | undefined;
  return {
    read: () => kept,
    write: (texts: [string, string][]) => {
      kept = texts;
    },
  };
}

describe("drafts", () => {
  it("outlive the page, each in its place, until they are gone", () => {
    const kept = shelf();
    const before = new Drafts(kept);
    before.write("message a", "half a");
    before.write("message b", "half b");
    before.write("message a", undefined);
    const after = new Drafts(kept);
    expect([after.read("message a"), after.read("message b")]).toEqual([undefined, "half b"]);
  });

  it("of a card are forgotten together", () => {
    const drafts = new Drafts(shelf());
    drafts.write("card 1 note", "no");
    drafts.write("card 1 arguments", "{");
    drafts.write("card 2 note", "yes");
    drafts.forget("card 1 ");
    expect(["card 1 note", "card 1 arguments", "card 2 note"].map((each) => drafts.read(each))).toEqual([
      undefined,
      undefined,
      "yes",
    ]);
  });

  it("are bounded: the one that was touched longest ago goes first", () => {
    const drafts = new Drafts(shelf());
    for (let n = 0; n < MOST_DRAFTS; n += 1) drafts.write(`${n}`, "x");
    drafts.write("0", "y");
    drafts.write("one more", "x");
    expect([drafts.read("0"), drafts.read("1"), drafts.read("2")]).toEqual(["y", undefined, "x"]);
  });

  it("are bounded in length: a very long one lives as long as the page, and pushes no other out", () => {
    const kept = shelf();
    const drafts = new Drafts(kept);
    drafts.write("a", "short");
    drafts.write("b", "x".repeat(MOST_CHARACTERS + 1));
    expect(drafts.read("b")).toHaveLength(MOST_CHARACTERS + 1);
    expect(new Drafts(kept).read("a")).toBe("short");
    expect(new Drafts(kept).read("b")).toBeUndefined();
  });

  it("tell those who watch", () => {
    const drafts = new Drafts(shelf());
    let told = 0;
    const leave = drafts.subscribe(() => {
      told += 1;
    });
    drafts.write("a", "x");
    leave();
    drafts.write("a", "y");
    expect(told).toBe(1);
  });
});
