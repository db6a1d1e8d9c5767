import { useState } from "react";
import { newKey } from "../api/repeating";
import type { CheckpointSummary } from "../api/schema";
import { Awaiting } from "../app/Awaiting";
import { Dialog } from "../app/Dialog";
import { ErrorText, Refused } from "../app/Failed";
import { Held } from "../app/Held";
import { useFork } from "../chat/branching";
import { LongText } from "../chat/LongText";
import { showJson } from "../fold/json";
import { useWords } from "../words/words";
import { DifferenceView } from "./DifferenceView";
import styles from "./operator.module.css";
import { useCheckpoint } from "./useHistory";

/** What a step changed, the whole state, and a way on from here. */
export function CheckpointView({ conversation, checkpoint }: { conversation: string; checkpoint: CheckpointSummary }) {
  const t = useWords();
  const [asking, setAsking] = useState(false);
  const { data, error, failureReason } = useCheckpoint(conversation, checkpoint.id);
  const { data: parent } = useCheckpoint(conversation, checkpoint.parent);
  const fork = useFork(conversation);
  if (!data) return error ? <Refused error={error} /> : <Awaiting why={failureReason} />;
  return (
    <div className={styles.section}>
      {data.truncated && <p className={styles.hint}>{t.turns.truncated}</p>}
      {(parent || checkpoint.parent === null) && <DifferenceView before={parent?.values ?? {}} after={data.values} />}
      <details>
        <summary>{t.turns.raw}</summary>
        <LongText text={showJson(data)} name={`${checkpoint.id}.json`} />
      </details>
      <div>
        <button type="button" onClick={() => setAsking(true)}>
          {t.turns.fork}
        </button>
      </div>
      {asking && (
        <Dialog title={t.turns.forkTitle} onClose={() => setAsking(false)}>
          <p>{t.turns.forkText}</p>
          <Held of={fork} />
          <ErrorText error={fork.error} />
          <div className="buttons">
            <button type="button" onClick={() => setAsking(false)}>
              {t.app.cancel}
            </button>
            <button
              type="button"
              className="primary"
              disabled={fork.isPending}
              onClick={() => fork.mutate({ request: { from: { checkpoint: checkpoint.id } }, key: newKey() })}
            >
              {t.turns.fork}
            </button>
          </div>
        </Dialog>
      )}
    </div>
  );
}
