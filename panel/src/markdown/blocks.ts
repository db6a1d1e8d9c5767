/** A streamed answer as blocks: all but the last are closed and stay as they are, so only the last is rendered again. */

import { Lexer } from "marked";
import remend from "remend";

export interface Block {
  text: string;
  closed: boolean;
}

export function blocksOf(markdown: string): Block[] {
  const raw = new Lexer({ gfm: true })
    .blockTokens(markdown, [])
    .map((token) => token.raw)
    .filter((text) => text.trim() !== "");
  return raw.map((text, n) => (n < raw.length - 1 ? { text, closed: true } : { text: remend(text), closed: false }));
}

const LONGEST = 400_000;
const LONGEST_LINE = 20_000;
const DEEPEST = 120;
const MOST_MARKS = 6_000;

/** What would keep the page busy for seconds: it is shown as plain text. */
export function isHeavy(markdown: string): boolean {
  if (markdown.length > LONGEST) return true;
  let marks = 0;
  for (const line of prose(markdown.split("\n"))) {
    if (depthOf(line) > DEEPEST) return true;
    marks += marksOf(line);
    if (marks > MOST_MARKS) return true;
  }
  return markdown.split("\n").some((line) => line.length > LONGEST_LINE);
}

/** What lies in fences at the margin is code whatever it looks like. Raw HTML may hold what only looks like a fence. */
function* prose(lines: readonly string[]): Generator<string> {
  let fence = "";
  let raw = false;
  for (const line of lines) {
    const run = raw ? "" : (/^(?:`{3,}(?=[^`]*$)|~{3,})/.exec(line)?.[0] ?? "");
    if (fence === "") {
      raw ||= /^ {0,3}</.test(line);
      yield line;
      fence = run;
    } else if (run.startsWith(fence) && line.trim() === run) {
      fence = "";
    }
  }
}

/** How much there may be to build: blocks, items, cells, links, emphasis. */
function marksOf(line: string): number {
  const starts = /^\s*(?:$|[>#*+-]|\d+[.)])/.test(line) ? 1 : 0;
  return starts + (line.match(/[[*_`<|@]|www\.|:\/\//g) ?? []).length;
}

/** Quotes and lists within each other, by what the line begins with. */
function depthOf(line: string): number {
  const start = /^(?:[\s>*+-]|\d{1,9}[.)])*/.exec(line)?.[0] ?? "";
  return Math.max(start.length / 2, (start.match(/>/g) ?? []).length);
}
