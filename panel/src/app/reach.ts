/** Whether the agent that a part of the page is about can be asked now. */

import { createContext, useContext } from "react";
import { useAgents } from "../api/queries";
import { reachOf } from "../api/reach";
import type { Reach } from "../api/schema";

export const ReachContext = createContext<Reach>("reachable");

/** `read`: what was told when something of the agent was read; it counts where the server does not name the agent. */
export function useReach(agent: string | undefined, read?: Reach): Reach {
  return reachOf(useAgents().data, agent, read);
}

/** The agent of the part of the page that this is in. */
export function useAway(): boolean {
  return useContext(ReachContext) !== "reachable";
}
