import type { Reach } from "../api/schema";
import { useWords } from "../words/words";

/** That an agent cannot be asked now; nothing while it can. */
export function AgentAway({ reach }: { reach: Reach }) {
  const t = useWords();
  if (reach === "reachable") return null;
  return (
    <span className="pill" data-reach={reach} role="status">
      {t.line[reach]}
    </span>
  );
}
