import { ErrorText } from "../app/Failed";
import { Held } from "../app/Held";
import { useWords } from "../words/words";
import { BranchPicker } from "./BranchPicker";
import { type Branching, forkBefore, useBranching, useFork } from "./branching";
import styles from "./chat.module.css";

/** Below a message: the other ways from here, and a new one. */
export function MessageTools({ message, by }: { message: string; by: "user" | "agent" }) {
  const branching = useBranching();
  return branching && <Tools message={message} by={by} branching={branching} />;
}

function Tools({ message, by, branching }: { message: string; by: "user" | "agent"; branching: Branching }) {
  const t = useWords();
  const fork = useFork(branching.conversation);
  const point = branching.points.get(message);
  return (
    <div className={styles.messageTools} data-by={by}>
      {point && <BranchPicker point={point} />}
      {by === "user" ? (
        <button type="button" className="quiet" data-edit={message} onClick={() => branching.edit(message)}>
          {t.chat.edit}
        </button>
      ) : (
        <button
          type="button"
          className="quiet"
          disabled={fork.isPending}
          onClick={() => fork.mutate(forkBefore(message))}
        >
          {t.chat.regenerate}
        </button>
      )}
      <Held of={fork} />
      <ErrorText error={fork.error} />
    </div>
  );
}
