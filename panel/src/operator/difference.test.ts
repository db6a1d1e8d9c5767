import { describe, expect, it } from "vitest";
import { difference } from "./difference";

describe("the difference of two states", () => {
  it("names what came, went and changed, and where", () => {
    const before = { messages: [{ id: "1", content: "a" }], step: 1, gone: true };
    const after = { messages: [{ id: "1", content: "b" }, { id: "2" }], step: 1, "new one": null };
    expect(difference(before, after)).toEqual([
      { place: "messages[0].content", kind: "changed", before: "a", after: "b" },
      { place: "messages[1]", kind: "added", after: { id: "2" } },
      { place: "gone", kind: "removed", before: true },
      { place: "new one", kind: "added", after: null },
    ]);
  });

  it("is nothing between equals, and all where the kind of value changed", () => {
    expect(difference({ a: [1, { b: 2 }] }, { a: [1, { b: 2 }] })).toEqual([]);
    expect(difference({ a: [1] }, { a: { 0: 1 } })).toEqual([
      { place: "a", kind: "changed", before: [1], after: { 0: 1 } },
    ]);
  });
});
