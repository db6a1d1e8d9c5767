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

  it("follows elements of a list by their ids: what went at the beginning changes nothing after it", () => {
    const [a, b, c] = ["a", "b", "c"].map((id) => ({ id, content: id }));
    expect(difference([a, b, c], [b, { ...c, content: "C" }, { id: "d" }])).toEqual([
      { place: "[0]", kind: "removed", before: a },
      { place: "[1].content", kind: "changed", before: "c", after: "C" },
      { place: "[2]", kind: "added", after: { id: "d" } },
    ]);
    expect(difference([a, a], [a, b])).toMatchObject([
      { place: "[1].id", kind: "changed" },
      { place: "[1].content", kind: "changed" },
    ]);
  });

  it("is nothing between equals, and all where the kind of value changed", () => {
    expect(difference({ a: [1, { b: 2 }] }, { a: [1, { b: 2 }] })).toEqual([]);
    expect(difference({ a: [1] }, { a: { 0: 1 } })).toEqual([
      { place: "a", kind: "changed", before: [1], after: { 0: 1 } },
    ]);
  });
});
