import type { ReactNode } from "react";
import { ApiError } from "../api/client";
import type { CardReply } from "../api/schema";
import { ErrorText } from "../app/Failed";
import { ago, clock } from "../words/figures";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import { ApprovalForm } from "./ApprovalForm";
import { CallFacts } from "./CallFacts";
import styles from "./cards.module.css";
import { QuestionForm } from "./QuestionForm";
import { UncertainForm } from "./UncertainForm";
import { type Deciding, useDecide } from "./useDecide";

const FORMS = { approval: ApprovalForm, uncertain: UncertainForm, interrupt: QuestionForm };

/** A question that waits for a person. */
export function Card({ card, children }: { card: CardReply; children?: ReactNode }) {
  const t = useWords();
  const decide = useDecide(card);
  const Form = FORMS[card.kind];
  return (
    <section className={styles.card} aria-label={t.card[card.kind]} data-kind={card.kind} data-card={card.id}>
      <h2>{t.card[card.kind]}</h2>
      {card.why && <p>{visible(card.why)}</p>}
      {card.tool !== null && <CallFacts card={card} />}
      {card.expires_at && <p className={styles.hint}>{t.card.expires(ago(card.expires_at, t.locale))}</p>}
      {card.deciders && <p className={styles.hint}>{t.card.deciders(card.deciders.map(visible).join(", "))}</p>}
      {decide.isSuccess ? null : <Form card={card} decide={decide} />}
      <Refused decide={decide} />
      {children}
    </section>
  );
}

/** Told to the one who came second: who decided, when and what. */
function Refused({ decide }: { decide: Deciding }) {
  const t = useWords();
  const { error } = decide;
  if (!(error instanceof ApiError) || error.code !== "APPROVAL_DECIDED") return <ErrorText error={error} />;
  const { decision, decided_by, decided_at } = error.envelope;
  const known = Object.entries(t.card.decisions).find(([name]) => name === decision)?.[1];
  return (
    <p className="error" role="alert">
      {t.card.lost(known ?? decision ?? "", visible(decided_by ?? ""), decided_at ? clock(decided_at, t.locale) : "")}
    </p>
  );
}
