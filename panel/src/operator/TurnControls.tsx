import { useState } from "react";
import { ACTIVE } from "../api/queries";
import type { TurnReply } from "../api/schema";
import { Dialog } from "../app/Dialog";
import { ErrorText } from "../app/Failed";
import { resumeWord } from "../chat/TurnButtons";
import { useTurnActions } from "../chat/useTurnActions";
import { useWords } from "../words/words";

/** Cancel and resume, each asked once more: an operator may not be the one whose turn it is. */
export function TurnControls({ turn }: { turn: TurnReply }) {
  const t = useWords();
  const [asking, setAsking] = useState<"cancel" | "resume" | null>(null);
  const actions = useTurnActions(turn.conversation, turn);
  const close = () => setAsking(null);
  const confirm = () => {
    if (asking === "cancel") actions.stop();
    else actions.resume();
    close();
  };
  return (
    <>
      {ACTIVE.has(turn.status) && (
        <button type="button" className="danger" disabled={actions.stopping} onClick={() => setAsking("cancel")}>
          {actions.stopping ? t.chat.stopping : t.turns.cancelTurn}
        </button>
      )}
      {turn.resumable && (
        <button type="button" disabled={actions.resuming} onClick={() => setAsking("resume")}>
          {resumeWord(turn, t)}
        </button>
      )}
      <ErrorText error={actions.error} />
      {asking && (
        <Dialog title={asking === "cancel" ? t.turns.cancelTitle : t.turns.resumeTitle} onClose={close}>
          <p>{asking === "cancel" ? t.turns.cancelText : t.turns.resumeText}</p>
          <div className="buttons">
            <button type="button" onClick={close}>
              {t.turns.keepIt}
            </button>
            <button type="button" className={asking === "cancel" ? "danger" : "primary"} onClick={confirm}>
              {asking === "cancel" ? t.turns.cancelTurn : resumeWord(turn, t)}
            </button>
          </div>
        </Dialog>
      )}
    </>
  );
}
