// @vitest-environment jsdom
import { describe, expect, it } from "vitest";
import { ApiError } from "../api/client";
import { de } from "./de";
import { en, type Words } from "./en";
import { failureOf, faultOf } from "./faults";

const answered = (code: string, message: string, status = 409) => new ApiError(status, { code, message });

describe.each([
  ["English", en],
  ["German", de],
] as [string, Words][])("what went wrong, in %s", (_name, t) => {
  it("is said by the code, with the server's own words where they have names and numbers", () => {
    const message = "The request is larger than 1,000,000 bytes. Nothing was accepted; send a shorter message.";
    expect(faultOf(answered("TOO_LARGE", message), t)).toEqual({ sentence: t.errors.TOO_LARGE, detail: message });
    const failure = { code: "RECURSION_LIMIT", message: "The turn used 25 steps." };
    expect(failureOf(failure, t)).toEqual({ sentence: t.failures.RECURSION_LIMIT, detail: failure.message });
  });

  it("is said once where they tell nothing more", () => {
    expect(faultOf(answered("STORAGE_FULL", "The disk is full."), t).detail).toBeNull();
    expect(failureOf({ code: "OWNER_DIED", message: "The process ended." }, t).detail).toBeNull();
    expect(faultOf(answered("TURN_NOT_RESUMABLE", t.errors.TURN_NOT_RESUMABLE), t).detail).toBeNull();
  });

  it("tells one code of two kinds apart", () => {
    const [error, failure] = [answered("TURN_NOT_RESUMABLE", "It runs."), { code: "TURN_NOT_RESUMABLE", message: "" }];
    expect(faultOf(error, t)).toEqual({ sentence: t.errors.TURN_NOT_RESUMABLE, detail: "It runs." });
    expect(failureOf(failure, t)).toEqual({ sentence: t.failures.TURN_NOT_RESUMABLE, detail: null });
  });

  it("is never nothing: also of a proxy, of a newer agent, and of the page itself", () => {
    expect(faultOf(answered("HTTP_413", "", 413), t)).toEqual({ sentence: t.app.refused("HTTP_413"), detail: null });
    const newer = failureOf({ code: "constructor", message: "What is new." }, t);
    expect(newer).toEqual({ sentence: t.app.refused("constructor"), detail: "What is new." });
    expect(faultOf(answered("UNREACHABLE", "", 0), t)).toEqual({ sentence: t.app.unreachable, detail: null });
    expect(faultOf(new TypeError("x is null"), t)).toEqual({ sentence: t.app.broken, detail: "x is null" });
  });

  it("shows the signs in the server's words that would turn the direction of text", () => {
    expect(faultOf(answered("NOT_FOUND", "There is no agent 'a\u202Eb' here."), t).detail).not.toContain("\u202E");
  });
});
