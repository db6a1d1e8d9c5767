import type { CallReply } from "../api/schema";
import { LongText } from "../chat/LongText";
import type { ToolState } from "../chat/toolState";
import { showJson } from "../fold/json";
import { between, clock } from "../words/figures";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import styles from "./operator.module.css";

/** The ledger of a turn: each call, what it does to the world, how often it was started. */
export function Calls({ calls }: { calls: readonly CallReply[] }) {
  const t = useWords();
  return (
    <section className={styles.section}>
      <h2>{t.turns.calls}</h2>
      {calls.length === 0 && <p className={styles.hint}>{t.turns.noCalls}</p>}
      {calls.map((each) => (
        <details key={each.key} className={styles.call}>
          <summary>
            <bdi>
              <code>{visible(each.name)}</code>
            </bdi>
            <span>{stateOf(each, t.tool.states)}</span>
            {each.starts > 1 && <span>{t.tool.rerun(each.attempt)}</span>}
            <span className={styles.hint}>
              {clock(each.started_at, t.locale)}
              {each.ended_at && ` · ${between(each.started_at, each.ended_at, t.locale)}`}
              {` · ${t.card.effects[each.effect_class]}`}
              {each.server && ` · ${t.tool.server(visible(each.server))}`}
            </span>
          </summary>
          {each.error && <p className="error">{visible(each.error)}</p>}
          <LongText text={showJson(each.arguments)} name={`${each.name}-arguments.json`} />
          <p className={styles.hint}>
            {t.card.key} <code>{visible(each.key)}</code>
          </p>
        </details>
      ))}
    </section>
  );
}

function stateOf(call: CallReply, words: Record<ToolState, string>): string {
  if (call.state === "paused") return words.asked;
  if (call.state !== "done") return words[call.state];
  return call.status === "error" ? words.error : words.done;
}
