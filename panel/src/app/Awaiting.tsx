import { holdOf } from "../api/held";
import { useWords } from "../words/words";

/** Something is read for the first time. `why`: what the server answered, or that it did not, when it was asked in vain. */
export function Awaiting({ why }: { why: Error | null }) {
  const t = useWords();
  const words = { server: t.app.awaiting, agent: t.app.awaitingAgent, "sign-in": t.app.awaiting };
  const hold = holdOf(why);
  return (
    <p className="empty" role="status">
      {why ? words[hold ?? "server"] : t.app.loading}
    </p>
  );
}
