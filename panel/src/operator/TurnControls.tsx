import { useState } from "react";
import { ENDED } from "../api/queries";
import type { TurnReply } from "../api/schema";
import { Dialog } from "../app/Dialog";
import { ErrorText } from "../app/Failed";
import { ActionsHeld, resumeWord } from "../chat/TurnButtons";
import { useTurnActions } from "../chat/useTurnActions";
import type { Words } from "../words/en";
import { useWords } from "../words/words";

interface Question {
  title: string;
  text: string;
  word: string;
  kind: "danger" | "primary";
  act(): void;
}

/** Cancel, resume and re-drive, each asked once more: an operator may not be the one whose turn it is. */
export function TurnControls({ turn }: { turn: TurnReply }) {
  const t = useWords();
  const [asked, setAsked] = useState<Question | null>(null);
  const actions = useTurnActions(turn.conversation, turn);
  const close = () => setAsked(null);
  const cancel = { ...cancelling(t), act: actions.stop };
  const resume = { ...resuming(turn, t), act: actions.resume };
  return (
    <>
      {!ENDED.has(turn.status) && (
        <button type="button" className="danger" disabled={actions.stopping} onClick={() => setAsked(cancel)}>
          {actions.stopping ? t.chat.stopping : cancel.word}
        </button>
      )}
      {turn.resumable && (
        <button type="button" disabled={actions.resuming} onClick={() => setAsked(resume)}>
          {resume.word}
        </button>
      )}
      <ActionsHeld actions={actions} />
      <ErrorText error={actions.error} />
      {asked && (
        <Dialog title={asked.title} onClose={close}>
          <p>{asked.text}</p>
          <div className="buttons">
            <button type="button" onClick={close}>
              {t.turns.keepIt}
            </button>
            <button
              type="button"
              className={asked.kind}
              onClick={() => {
                asked.act();
                close();
              }}
            >
              {asked.word}
            </button>
          </div>
        </Dialog>
      )}
    </>
  );
}

function cancelling(t: Words): Omit<Question, "act"> {
  return { title: t.turns.cancelTitle, text: t.turns.cancelText, word: t.turns.cancelTurn, kind: "danger" };
}

/** A turn whose process died and whose agent waits for a person is driven again; any other goes on. */
function resuming(turn: TurnReply, t: Words): Omit<Question, "act"> {
  if (turn.status === "interrupted")
    return { title: t.turns.redriveTitle, text: t.turns.redriveText, word: t.turns.redrive, kind: "primary" };
  return { title: t.turns.resumeTitle, text: t.turns.resumeText, word: resumeWord(turn, t), kind: "primary" };
}
