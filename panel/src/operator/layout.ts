/** Where the bars of a turn stand. Time in which nothing ran (a decision was waited for, the server was down) is folded. Pure. */

import type { TurnReply } from "../api/schema";

export interface Bar {
  key: string;
  row: number;
  kind: "attempt" | "call" | "parked";
  name: string;
  state: string;
  from: number;
  to: number;
}

export interface Gap {
  from: number;
  to: number;
  /** How long it was before it was folded. */
  milliseconds: number;
}

export interface Layout {
  bars: Bar[];
  gaps: Gap[];
  /** All of it, in folded milliseconds. */
  length: number;
  rows: number;
}

const FOLD_FROM_MS = 5_000;
const FOLDED_SHARE = 0.04;

interface Span {
  from: number;
  to: number;
}

export function layout(turn: TurnReply, now: number): Layout {
  const start = Date.parse(turn.accepted_at);
  const end = Math.max(start + 1, turn.ended_at === null ? now : Date.parse(turn.ended_at));
  const attempts = turn.attempts.map((each) => spanOf(each.started_at, each.ended_at, end));
  const idle = gapsBetween(attempts, start, end).filter((gap) => gap.to - gap.from >= FOLD_FROM_MS);
  const worked = end - start - idle.reduce((sum, gap) => sum + gap.to - gap.from, 0);
  const folded = Math.max(1, worked) * FOLDED_SHARE;
  const place = (time: number) => placed(Math.min(Math.max(time, start), end), start, idle, folded);
  const bars = barsOf(turn, end).map((bar) => ({ ...bar, from: place(bar.from), to: place(bar.to) }));
  return {
    bars,
    gaps: idle.map((gap) => ({ from: place(gap.from), to: place(gap.to), milliseconds: gap.to - gap.from })),
    length: Math.max(1, place(end)),
    rows: 1 + Math.max(0, ...bars.map((bar) => bar.row)),
  };
}

function barsOf(turn: TurnReply, end: number): Bar[] {
  const attempts = turn.attempts.map((each): Bar => {
    const name = String(each.number);
    return {
      key: `a${name}`,
      row: 0,
      kind: "attempt",
      name,
      state: each.outcome ?? "running",
      ...spanOf(each.started_at, each.ended_at, end),
    };
  });
  const calls = turn.calls.map((each, n): Bar => {
    const state = each.state === "done" ? (each.status ?? "done") : each.state;
    return {
      key: `c${each.key}`,
      row: n + 1,
      kind: "call",
      name: each.name,
      state,
      ...spanOf(each.started_at, each.ended_at, end),
    };
  });
  const parked = turn.cards.map((each): Bar => {
    const until = each.decided_at ?? (each.state === "opened" ? null : each.opened_at);
    return {
      key: `k${each.id}`,
      row: 0,
      kind: "parked",
      name: each.tool ?? "",
      state: each.state,
      ...spanOf(each.opened_at, until, end),
    };
  });
  return [...attempts, ...parked, ...calls];
}

/** Never backwards: the clocks of two machines may disagree. */
function spanOf(from: string, to: string | null, end: number): Span {
  const begin = Date.parse(from);
  return { from: begin, to: Math.max(begin, to === null ? end : Date.parse(to)) };
}

function gapsBetween(spans: readonly Span[], start: number, end: number): Span[] {
  const gaps: Span[] = [];
  let reached = start;
  for (const span of [...spans].sort((a, b) => a.from - b.from)) {
    if (span.from > reached) gaps.push({ from: reached, to: span.from });
    reached = Math.max(reached, span.to);
  }
  if (end > reached) gaps.push({ from: reached, to: end });
  return gaps;
}

function placed(time: number, start: number, idle: readonly Span[], folded: number): number {
  let place = time - start;
  for (const gap of idle) {
    const passed = Math.min(Math.max(time - gap.from, 0), gap.to - gap.from);
    place -= passed * (1 - folded / (gap.to - gap.from));
  }
  return place;
}
