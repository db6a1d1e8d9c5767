/** Whether an agent can be asked now: as it was read, and as the server told since. Pure. */

import type { AgentsReply, Reach } from "./schema";

export interface ReachNews {
  agent: string;
  reach: Reach | "forgotten";
}

/** The same object when it is no news. Undefined when the agent is a new one: all of them are to be read. */
export function reached(known: AgentsReply, { agent, reach }: ReachNews): AgentsReply | undefined {
  const before = known.items.find((each) => each.name === agent);
  if (reach === "forgotten") return before ? { ...known, items: known.items.filter((each) => each !== before) } : known;
  if (!before) return undefined;
  if (before.reach === reach) return known;
  return { ...known, items: known.items.map((each) => (each === before ? { ...each, reach } : each)) };
}

/** Of an agent that the server does not name (another one has its file by now) what was read with the conversation. */
export function reachOf(known: AgentsReply | undefined, agent: string | undefined, read?: Reach): Reach {
  return known?.items.find((each) => each.name === agent)?.reach ?? read ?? "reachable";
}
