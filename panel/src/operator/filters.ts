/** What is looked for among turns. The address is the truth: `?status&agent&q&repeated`. Pure. */

import type { TurnFilters } from "../api/queries";

export type FilterName = "status" | "agent" | "q" | "repeated";

export function filtersOf(search: URLSearchParams): TurnFilters {
  return {
    status: search.get("status") ?? undefined,
    agent: search.get("agent") ?? undefined,
    q: search.get("q") ?? undefined,
    attempts_min: search.get("repeated") === "1" ? "2" : undefined,
  };
}

/** The address with one of them changed; without it when the value is empty. */
export function changed(search: URLSearchParams, name: FilterName, value: string): URLSearchParams {
  const next = new URLSearchParams(search);
  if (value) next.set(name, value);
  else next.delete(name);
  return next;
}

/** A list's choices, with the chosen one even where the list does not have it. */
export function choices(known: readonly string[], chosen: string): readonly string[] {
  return chosen === "" || known.includes(chosen) ? known : [...known, chosen];
}
