import type { TurnSummary } from "../api/schema";
import { visible } from "../words/visible";
import { useWords } from "../words/words";

/** Why a turn ended or waits, in words; the server's own name of it is the title. */
export function Reason({ turn }: { turn: TurnSummary }) {
  const t = useWords();
  if (!turn.reason) return null;
  const name = visible(turn.reason);
  return <span title={name}>{t.turns.reasons[turn.reason] ?? name}</span>;
}
