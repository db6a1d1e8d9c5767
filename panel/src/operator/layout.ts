/** Where the bars of a turn stand. Time in which nothing ran (a decision was waited for, the server was down) is folded. Pure. */

import { ENDED } from "../api/queries";
import type { TurnReply } from "../api/schema";
import type { Step } from "./steps";

export interface Bar {
  key: string;
  kind: "attempt" | "step" | "call" | "parked";
  name: string;
  state: string;
  from: number;
  to: number;
  /** How long it took, nothing folded. */
  milliseconds: number;
}

export interface Gap {
  from: number;
  to: number;
  /** How long it was before it was folded. */
  milliseconds: number;
}

export interface Layout {
  /** One a row, from the top. */
  bars: Bar[];
  gaps: Gap[];
  /** All of it, in folded milliseconds. */
  length: number;
  /** As the clock says. */
  start: number;
  end: number;
  /** Bars that are left out: there are too many. */
  hidden: number;
}

const FOLD_FROM_MS = 5_000;
const FOLDED_SHARE = 0.06;
/** More rows than a person looks at are not drawn. */
export const MOST_ROWS = 300;

interface Span {
  from: number;
  to: number;
}

type Draft = Omit<Bar, "milliseconds">;

/** Of more steps and calls than fit the newest are drawn, and time begins with the first of them. */
export function layout(turn: TurnReply, steps: readonly Step[], now: number): Layout {
  const accepted = Date.parse(turn.accepted_at);
  const end = Math.max(accepted + 1, turn.ended_at === null ? latest(turn, steps, now) : Date.parse(turn.ended_at));
  const work = waterfall([...stepBars(turn, steps, end), ...callBars(turn, end)]);
  const hidden = Math.max(0, work.length - MOST_ROWS);
  const start = hidden > 0 ? (work[hidden]?.from ?? accepted) : accepted;
  const attempts = attemptBars(turn, end);
  const around = [...attempts, ...parkedBars(turn, end)].filter((bar) => bar.to >= start);
  const idle = gapsBetween(attempts, start, end).filter((gap) => gap.to - gap.from >= FOLD_FROM_MS);
  const worked = end - start - idle.reduce((sum, gap) => sum + gap.to - gap.from, 0);
  const folded = Math.max(1, worked) * FOLDED_SHARE;
  const place = (time: number) => placed(Math.min(Math.max(time, start), end), start, idle, folded);
  return {
    bars: waterfall([...around, ...work.slice(hidden)]).map((bar): Bar => {
      return { ...bar, from: place(bar.from), to: place(bar.to), milliseconds: bar.to - bar.from };
    }),
    gaps: idle.map((gap) => ({ from: place(gap.from), to: place(gap.to), milliseconds: gap.to - gap.from })),
    start,
    end,
    length: Math.max(1, place(end)),
    hidden,
  };
}

/** Now, or what the server's clock told last: this browser's may be behind it. */
function latest(turn: TurnReply, steps: readonly Step[], now: number): number {
  const told = [
    ...turn.attempts.flatMap((each) => [each.started_at, each.ended_at]),
    ...turn.calls.flatMap((each) => [each.started_at, each.ended_at]),
    ...steps.flatMap((each) => [each.from, each.to]),
  ];
  return told.reduce((last, at) => (at === null ? last : Math.max(last, Date.parse(at))), now);
}

/** In the order in which they began, the outer one first. */
function waterfall(bars: readonly Draft[]): Draft[] {
  return [...bars].sort((a, b) => a.from - b.from);
}

function attemptBars(turn: TurnReply, end: number): Draft[] {
  return turn.attempts.map((each) => ({
    key: `a${each.number}`,
    kind: "attempt",
    name: String(each.number),
    state: each.outcome ?? "running",
    ...spanOf(each.started_at, each.ended_at, end),
  }));
}

/** A step whose end was not recorded went on until its attempt ended. */
function stepBars(turn: TurnReply, steps: readonly Step[], end: number): Draft[] {
  const attempts = new Map(turn.attempts.map((each) => [each.number, each]));
  return steps.map((each) => {
    const attempt = attempts.get(each.attempt);
    const open = each.to === null;
    const running = open && attempt?.outcome === null && !ENDED.has(turn.status);
    return {
      key: `s${each.key}`,
      kind: "step",
      name: each.name,
      state: running ? "running" : open ? "unknown" : each.outcome,
      ...spanOf(each.from, each.to ?? attempt?.ended_at ?? null, end),
    };
  });
}

function callBars(turn: TurnReply, end: number): Draft[] {
  return turn.calls.map((each) => ({
    key: `c${each.key}`,
    kind: "call",
    name: each.name,
    state: each.state === "done" ? (each.status ?? "done") : each.state,
    ...spanOf(each.started_at, each.ended_at, end),
  }));
}

function parkedBars(turn: TurnReply, end: number): Draft[] {
  return turn.cards.map((each) => ({
    key: `k${each.id}`,
    kind: "parked",
    name: each.tool ?? "",
    state: each.state,
    ...spanOf(each.opened_at, each.decided_at ?? (each.state === "opened" ? null : each.opened_at), end),
  }));
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
