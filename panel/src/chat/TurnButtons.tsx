import { ACTIVE } from "../api/queries";
import type { TurnSummary } from "../api/schema";
import { ErrorText } from "../app/Failed";
import { Held } from "../app/Held";
import type { Words } from "../words/en";
import { useWords } from "../words/words";
import type { TurnActions } from "./useTurnActions";

interface Props {
  current: TurnSummary | undefined;
  resumable: boolean;
  actions: TurnActions;
}

/** Stop while the turn is active; Resume, Retry or Continue once it has failed and can go on. */
export function TurnButtons({ current, resumable, actions }: Props) {
  const t = useWords();
  if (!current) return null;
  if (ACTIVE.has(current.status)) {
    return (
      <>
        <button
          type="button"
          className="danger"
          disabled={actions.stopping}
          title={stopHint(actions, t)}
          onClick={actions.stop}
        >
          {t.chat.stop}
        </button>
        <ErrorText error={actions.error} />
      </>
    );
  }
  if (!resumable || (current.status !== "failed" && current.status !== "interrupted")) return null;
  return (
    <>
      <button type="button" disabled={actions.resuming} onClick={actions.resume}>
        {resumeWord(current, t)}
      </button>
      <ErrorText error={actions.error} />
    </>
  );
}

/** Why Stop, or Resume, has no effect yet. */
export function ActionsHeld({ actions }: { actions: TurnActions }) {
  const t = useWords();
  return (
    <>
      <Held of={actions.asked.stop} says={t.chat.stopHeld} />
      <Held of={actions.asked.resume} />
    </>
  );
}

function stopHint(actions: TurnActions, t: Words): string | undefined {
  return actions.stopping ? t.chat.stopping : undefined;
}

const LIMITS = new Set(["RECURSION_LIMIT", "LIMIT_REACHED"]);

export function resumeWord(turn: TurnSummary, t: Words): string {
  if (turn.status === "interrupted") return t.chat.resume;
  return LIMITS.has(turn.error?.code ?? "") ? t.chat.continue : t.chat.retry;
}
