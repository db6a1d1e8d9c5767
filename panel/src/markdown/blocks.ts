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
const MOST_OPENERS = 4_000;

/** What would keep the page busy for seconds: it is shown as plain text. */
export function isHeavy(markdown: string): boolean {
  if (markdown.length > LONGEST) return true;
  let openers = 0;
  for (const line of markdown.split("\n")) {
    if (line.length > LONGEST_LINE || depthOf(line) > DEEPEST) return true;
    openers += (line.match(/[[*_`<]/g) ?? []).length;
    if (openers > MOST_OPENERS && openers > markdown.length / 4) return true;
  }
  return false;
}

function depthOf(line: string): number {
  const start = /^[\s>*+-]*/.exec(line)?.[0] ?? "";
  return Math.max(start.length / 2, (start.match(/>/g) ?? []).length);
}
