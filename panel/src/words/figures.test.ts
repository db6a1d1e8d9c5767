import { expect, test } from "vitest";
import { ago, ahead } from "./figures";

const NOW = Date.parse("2026-01-01T12:00:00Z");

test("what has happened is never in the future, although the server's clock may be a second ahead", () => {
  expect(ago("2026-01-01T12:00:01Z", "en", NOW)).toBe("now");
  expect(ago("2026-01-01T11:59:00Z", "en", NOW)).toBe("1 min. ago");
});

test("what is to come may be", () => {
  expect(ahead("2026-01-01T12:00:05Z", "en", NOW)).toBe("in 5 sec.");
});
