import type { Reach } from "../api/schema";
import type { LineState } from "../stream/connection";

export type Shown = LineState | Exclude<Reach, "reachable">;

const STANDS: ReadonlySet<LineState> = new Set(["live", "catching-up", "unfollowed"]);

/** The page's own line goes first: while it is down nobody can tell how the agent is. */
export function lineShown(line: LineState, reach: Reach): Shown {
  return reach !== "reachable" && STANDS.has(line) ? reach : line;
}
