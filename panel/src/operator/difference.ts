/** What changed from one JSON value to the next, by place. Pure. */

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
  if (Array.isArray(before) && Array.isArray(after)) return inLists(before, after, place);
  return JSON.stringify(before) === JSON.stringify(after) ? [] : [{ place, kind: "changed", before, after }];
}

function at(before: object, after: object, key: string | number, place: string): Difference[] {
  const [old, now] = [before as Record<string | number, unknown>, after as Record<string | number, unknown>];
  if (!Object.hasOwn(before, key)) return [{ place, kind: "added", after: now[key] }];
  if (!Object.hasOwn(after, key)) return [{ place, kind: "removed", before: old[key] }];
  return difference(old[key], now[key], place);
}

/** By the ids of their elements where all have one (messages do), else by position. */
function inLists(before: unknown[], after: unknown[], place: string): Difference[] {
  const [old, now] = [idsOf(before), idsOf(after)];
  if (!old || !now) {
    return Array.from({ length: Math.max(before.length, after.length) }, (_, n) => n).flatMap((n) =>
      at(before, after, n, `${place}[${n}]`),
    );
  }
  const removed = before.flatMap((each, n): Difference[] =>
    now.has(idOf(each)) ? [] : [{ place: `${place}[${n}]`, kind: "removed", before: each }],
  );
  const rest = after.flatMap((each, n): Difference[] => {
    const was = old.get(idOf(each));
    const here = `${place}[${n}]`;
    return was === undefined ? [{ place: here, kind: "added", after: each }] : difference(before[was], each, here);
  });
  return [...removed, ...rest];
}

/** Where each id stands. Null when one has none, or two have the same. */
function idsOf(list: readonly unknown[]): Map<unknown, number> | null {
  const places = new Map(list.map((each, n) => [idOf(each), n]));
  return places.size === list.length && !places.has(undefined) ? places : null;
}

function idOf(value: unknown): unknown {
  return isRecord(value) && typeof value.id === "string" ? value.id : undefined;
}
