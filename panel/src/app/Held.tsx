import { holdOf } from "../api/held";
import type { Words } from "../words/en";
import { useWords } from "../words/words";
import { useAway } from "./reach";

interface Props {
  /** A mutation. */
  of: { isPending: boolean; failureReason: Error | null };
  /** What is said of it; the general words without. */
  says?: Words["app"]["held"];
}

/** Why something that a person asked for waits: it is sent again until it is answered. */
export function Held({ of, says }: Props) {
  const t = useWords();
  const away = useAway();
  if (!of.isPending) return null;
  const hold = of.failureReason ? holdOf(of.failureReason) : away ? "agent" : null;
  if (hold !== "server" && hold !== "agent") return null;
  return (
    <p className="held" role="status">
      {(says ?? t.app.held)[hold]}
    </p>
  );
}
