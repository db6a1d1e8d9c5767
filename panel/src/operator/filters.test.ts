import { describe, expect, it } from "vitest";
import { changed, choices, filtersOf } from "./filters";

describe("the filters of turns", () => {
  it("are read from the address and written to it", () => {
    const search = new URLSearchParams("status=failed&q=two+words&other=kept");
    expect(filtersOf(search)).toEqual({ status: "failed", agent: undefined, q: "two words", attempts_min: undefined });
    expect(changed(search, "repeated", "1").toString()).toBe("status=failed&q=two+words&other=kept&repeated=1");
    expect(changed(search, "status", "").toString()).toBe("q=two+words&other=kept");
    expect(filtersOf(changed(search, "repeated", "1")).attempts_min).toBe("2");
    expect(search.toString()).toBe("status=failed&q=two+words&other=kept");
  });

  it("show what is chosen also where nobody offers it", () => {
    expect(choices(["a", "b"], "b")).toEqual(["a", "b"]);
    expect(choices(["a", "b"], "")).toEqual(["a", "b"]);
    expect(choices(["a"], "gone")).toEqual(["a", "gone"]);
  });
});
