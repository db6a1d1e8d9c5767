// @vitest-environment jsdom
import { expect, it } from "vitest";
import { fewAtATime } from "./repeating";

it("asks for a few at a time, and for the next as those are answered", () => {
  const all = [1, 2, 3, 4, 5, 6, 7];
  const answered = new Set<number>();
  const asked = () => fewAtATime(all, (each) => !answered.has(each));
  expect(asked()).toEqual([1, 2, 3, 4]);
  answered.add(2);
  expect(asked()).toEqual([1, 2, 3, 4, 5]);
  for (const each of all) answered.add(each);
  expect(asked()).toEqual(all);
});
