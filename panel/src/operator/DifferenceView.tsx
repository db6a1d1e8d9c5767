import { showJson } from "../fold/json";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import { type Difference, difference } from "./difference";
import styles from "./operator.module.css";

/** More is in the raw JSON. */
const MOST = 100;
const LONGEST = 400;
const SIGNS = { added: "+", removed: "−", changed: "±" };

export function DifferenceView({ before, after }: { before: unknown; after: unknown }) {
  const t = useWords();
  const changes = difference(before, after);
  return (
    <ul className={styles.difference} aria-label={t.turns.difference}>
      {changes.length === 0 && <li className={styles.hint}>{t.turns.same}</li>}
      {changes.slice(0, MOST).map((each) => (
        <li key={each.place} data-kind={each.kind}>
          <code>
            {SIGNS[each.kind]} {visible(each.place)}
          </code>
          <pre>{visible(textOf(each))}</pre>
        </li>
      ))}
      {changes.length > MOST && <li className={styles.hint}>{t.turns.moreChanges(changes.length - MOST)}</li>}
    </ul>
  );
}

function textOf({ kind, before, after }: Difference): string {
  if (kind === "added") return short(after);
  if (kind === "removed") return short(before);
  return `${short(before)} → ${short(after)}`;
}

function short(value: unknown): string {
  const text = showJson(value);
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
}
