import type { KeyboardEvent, ReactNode } from "react";
import type { CardReply } from "../api/schema";
import { ErrorText } from "../app/Failed";
import { Held } from "../app/Held";
import { ahead } from "../words/figures";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import { ApprovalForm } from "./ApprovalForm";
import { CallFacts } from "./CallFacts";
import styles from "./cards.module.css";
import { QuestionForm } from "./QuestionForm";
import { UncertainForm } from "./UncertainForm";
import { useDecide, wasLate } from "./useDecide";

const FORMS = { approval: ApprovalForm, uncertain: UncertainForm, interrupt: QuestionForm };

/** A question that waits for a person. */
export function Card({ card, children }: { card: CardReply; children?: ReactNode }) {
  const t = useWords();
  const decide = useDecide(card);
  const Form = FORMS[card.kind];
  return (
    <article
      className={styles.card}
      aria-label={t.card[card.kind]}
      data-kind={card.kind}
      data-card={card.id}
      onKeyDown={leaveField}
    >
      <h2>{t.card[card.kind]}</h2>
      {card.why && <p>{visible(card.why)}</p>}
      {card.tool !== null && <CallFacts card={card} />}
      {card.expires_at && <p className={styles.hint}>{t.card.expires(ahead(card.expires_at, t.locale))}</p>}
      {card.deciders && <p className={styles.hint}>{t.card.deciders(card.deciders.map(visible).join(", "))}</p>}
      {decide.isSuccess || wasLate(decide.error) ? null : <Form card={card} decide={decide} />}
      <Held of={decide} says={t.card.held} />
      {!wasLate(decide.error) && <ErrorText error={decide.error} />}
      {children}
    </article>
  );
}

/** Escape in a field is about the field: it must not stop the turn that waits. */
function leaveField(event: KeyboardEvent<HTMLElement>): void {
  const { target } = event;
  if (event.key !== "Escape" || event.nativeEvent.isComposing) return;
  if (!(target instanceof HTMLInputElement || target instanceof HTMLTextAreaElement)) return;
  event.preventDefault();
  target.blur();
}
