/** Why something that a person asked for is tried again. */

import { ApiError } from "./client";

/** No server answered; the server did, and its agent did not; it does not know who asks, until somebody signs in. */
export type Hold = "server" | "agent" | "sign-in";

/** Null: it was refused, or is broken, and is not tried again. */
export function holdOf(error: unknown): Hold | null {
  if (!(error instanceof ApiError)) return null;
  if (error.status === 401) return "sign-in";
  if (!error.passing) return null;
  return error.code === "AGENT_UNAVAILABLE" ? "agent" : "server";
}
