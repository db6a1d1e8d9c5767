import type { TurnStatus } from "./schema";

export const ENDED: ReadonlySet<TurnStatus> = new Set(["completed", "failed", "cancelled", "interrupted"]);
export const ACTIVE: ReadonlySet<TurnStatus> = new Set(["queued", "running", "parked"]);
