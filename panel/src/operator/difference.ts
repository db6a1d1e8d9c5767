/** What changed from one JSON value to the next, by place. Lists are compared by position, as states grow at their end. Pure. */

import { isRecord } from "../fold/json";

export interface Difference {
  /** `messages[3].content`. */
  place: string;
  kind: "added" | "removed" | "changed";
  before?: unknown;
  after?: unknown;
}

export function difference(before: unknown, after: unknown, place = ""): Difference[] {
  if (isRecord(before) && isRecord(after)) {
    return [...new Set([...Object.keys(before), ...Object.keys(after)])].flatMap((key) =>
      at(before, after, key, place === "" ? key : `${place}.${key}`),
    );
  }
  if (Array.isArray(before) && Array.isArray(after)) {
    return Array.from({ length: Math.max(before.length, after.length) }, (_, n) => n).flatMap((n) =>
      at(before, after, n, `${place}[${n}]`),
    );
  }
  return JSON.stringify(before) === JSON.stringify(after) ? [] : [{ place, kind: "changed", before, after }];
}

function at(before: object, after: object, key: string | number, place: string): Difference[] {
  const [old, now] = [before as Record<string | number, unknown>, after as Record<string | number, unknown>];
  if (!Object.hasOwn(before, key)) return [{ place, kind: "added", after: now[key] }];
  if (!Object.hasOwn(after, key)) return [{ place, kind: "removed", before: old[key] }];
  return difference(old[key], now[key], place);
}
