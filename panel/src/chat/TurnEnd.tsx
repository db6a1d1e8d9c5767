import type { TurnSummary } from "../api/schema";
import { ErrorText } from "../app/Failed";
import { FaultText } from "../app/FaultText";
import { Held } from "../app/Held";
import { useAway } from "../app/reach";
import { failureOf } from "../words/faults";
import { ahead, count } from "../words/figures";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import styles from "./chat.module.css";
import { Stalled } from "./Stalled";
import { useTurnActions } from "./useTurnActions";

/** Below a turn: what became of it, what it used, or that it waits. */
export function TurnEnd({ turn }: { turn: TurnSummary }) {
  const t = useWords();
  const away = useAway();
  return (
    <>
      <Notice turn={turn} />
      <Usage usage={turn.usage} />
      {turn.status === "waiting" && <Waiting turn={turn} />}
      {turn.next_attempt_at && <p className={styles.usage}>{t.chat.retrying(ahead(turn.next_attempt_at, t.locale))}</p>}
      {turn.status === "running" && !away && (
        <p className={styles.working}>
          <span className={styles.pulse} aria-hidden="true" />
          {t.chat.working}
        </p>
      )}
      {(turn.status === "running" || turn.status === "queued") && !away && <Stalled />}
    </>
  );
}

/** It has not begun: it can still be taken back. */
function Waiting({ turn }: { turn: TurnSummary }) {
  const t = useWords();
  const actions = useTurnActions(turn.conversation, turn);
  return (
    <p className={styles.usage}>
      {t.chat.queued}
      <button type="button" className="quiet" onClick={actions.stop}>
        {t.chat.takeBack}
      </button>
      <Held of={actions.asked.stop} />
      <ErrorText error={actions.error} />
    </p>
  );
}

function Notice({ turn }: { turn: TurnSummary }) {
  const t = useWords();
  if (turn.status === "cancelled") return <p className={styles.notice}>{t.chat.cancelledNotice}</p>;
  if (turn.status !== "failed" && turn.status !== "interrupted") return null;
  return (
    <div className={styles.notice} data-bad role="alert">
      <strong>{turn.status === "failed" ? t.chat.failedNotice : t.chat.interruptedNotice}</strong>
      {turn.error && (
        <p>
          <FaultText fault={failureOf(turn.error, t)} />
        </p>
      )}
      {turn.error && (
        <code>
          {turn.error.code}
          {turn.reason ? ` · ${visible(turn.reason)}` : ""}
        </code>
      )}
    </div>
  );
}

function Usage({ usage }: { usage: Record<string, number> }) {
  const t = useWords();
  const { input_tokens: input = 0, output_tokens: output = 0 } = usage;
  if (input + output === 0) return null;
  return <p className={styles.usage}>{t.chat.usage(count(input, t.locale), count(output, t.locale))}</p>;
}
