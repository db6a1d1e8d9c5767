import type { CardReply } from "../api/schema";
import { showJson } from "../fold/json";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import styles from "./cards.module.css";

/** Exactly what runs when it is approved. */
export function CallFacts({ card }: { card: CardReply }) {
  const t = useWords();
  return (
    <>
      <dl className={styles.facts}>
        <Fact name={t.card.tool} value={card.tool} />
        <Fact name={t.card.server} value={card.server} />
        <Fact name={t.card.effect} value={card.effect_class && t.card.effects[card.effect_class]} />
        {card.kind === "uncertain" && <Fact name={t.card.key} value={card.key} />}
        <Fact name={t.card.digest} value={card.digest?.slice(0, 12) ?? null} title={card.digest} />
      </dl>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard */}
      <pre className={styles.arguments} tabIndex={0}>
        {visible(showJson(card.arguments))}
      </pre>
    </>
  );
}

function Fact({ name, value, title }: { name: string; value: string | null; title?: string | null }) {
  if (!value) return null;
  return (
    <div>
      <dt>{name}</dt>
      <dd title={title ?? undefined}>
        <bdi>{visible(value)}</bdi>
      </dd>
    </div>
  );
}
