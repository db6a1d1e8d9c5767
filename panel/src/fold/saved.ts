/** A fold as text, for a tab that joins later. */

import type { Fold, FoldedTurn } from "./fold";
import { parseJson } from "./json";

type Saved<T> = T extends ReadonlyMap<infer K, infer V> ? [K, V][] : T extends ReadonlySet<infer V> ? V[] : T;
type SavedTurn = { [Field in keyof FoldedTurn]: Saved<FoldedTurn[Field]> };

export function save(fold: Fold): string {
  const turns = [...fold].map(([id, turn]): [string, SavedTurn] => [
    id,
    {
      ...turn,
      messages: [...turn.messages],
      tokens: [...turn.tokens],
      approvals: [...turn.approvals],
      attempts: [...turn.attempts],
      seen: [...turn.seen],
    },
  ]);
  return JSON.stringify(turns);
}

export function restore(saved: string): Fold {
  const turns = parseJson(saved) as [string, SavedTurn][];
  return new Map(
    turns.map(([id, turn]): [string, FoldedTurn] => [
      id,
      {
        ...turn,
        messages: new Map(turn.messages),
        tokens: new Map(turn.tokens),
        approvals: new Map(turn.approvals),
        attempts: new Map(turn.attempts),
        seen: new Set(turn.seen),
      },
    ]),
  );
}
