import type { Transcript } from "../api/queries";
import type { Reach } from "../api/schema";
import { useWords } from "../words/words";
import styles from "./chat.module.css";

/** What is shown is what was copied of an agent that cannot be asked now, or did not answer when it was. */
export function Copy({ transcript, reach }: { transcript: Transcript | undefined; reach: Reach }) {
  const t = useWords();
  const told = reach === "reachable" ? transcript?.reach : reach;
  if (!transcript || told === undefined || told === "reachable") return null;
  return (
    <p className={styles.copy} data-copy={transcript.reach !== "reachable"} role="status">
      {t.chat.away[told]} {t.chat.copied}
    </p>
  );
}
