import { expect, it, vi } from "vitest";
import { hear, serverNow } from "./skew";

const HOUR = 3_600_000;
const NOON = Date.parse("2026-01-01T12:00:00Z");

it("goes by the server's clock where the browser's is off, and by the browser's where nobody can tell", () => {
  vi.useFakeTimers({ now: NOON });
  const says = (ms: number) => new Date(ms).toUTCString();
  hear(null, NOON);
  hear("no date", NOON);
  hear(says(NOON - 400), NOON - 100);
  expect(serverNow()).toBe(NOON);
  hear(says(NOON + 3 * HOUR), NOON - 100);
  expect(Math.abs(serverNow() - NOON - 3 * HOUR)).toBeLessThan(1_000);
  const before = serverNow();
  hear(says(NOON + 3 * HOUR - 9_000), NOON - 20_000);
  expect(serverNow()).toBe(before);
  hear(says(NOON), NOON);
  expect(Math.abs(serverNow() - NOON)).toBeLessThan(1_000);
  vi.useRealTimers();
});
