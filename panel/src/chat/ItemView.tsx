import { memo } from "react";
import type { TurnSummary } from "../api/schema";
import { Markdown } from "../markdown/Markdown";
import { useWords } from "../words/words";
import styles from "./chat.module.css";
import type { Item } from "./items";
import { MessageTools } from "./MessageTools";
import { Reasoning } from "./Reasoning";
import { ToolCard } from "./ToolCard";
import { TurnEnd } from "./TurnEnd";
import { UnsentMessage } from "./UnsentMessage";
import { UserMessage } from "./UserMessage";

interface Props {
  item: Item;
  turn: TurnSummary | undefined;
}

export const ItemView = memo(View, (before, after) => before.turn === after.turn && same(before.item, after.item));

function View({ item, turn }: Props) {
  switch (item.kind) {
    case "user":
      return <UserMessage id={item.key} text={item.text} pending={item.pending} />;
    case "unsent":
      return <UnsentMessage text={item.text} hold={item.hold} />;
    case "assistant":
      return <AgentMessage id={item.key} text={item.text} live={item.live} cut={item.cut} />;
    case "reasoning":
      return <Reasoning text={item.text} />;
    case "call":
      return (
        <ToolCard
          turn={item.turn}
          message={item.message}
          call={item.call}
          nth={item.nth}
          result={item.result}
          started={item.started}
        />
      );
    case "divider":
      return <Divider why={item.why} />;
    case "end":
      return turn ? <TurnEnd turn={turn} /> : null;
  }
}

function AgentMessage({ id, text, live, cut }: { id: string; text: string; live: boolean; cut: boolean }) {
  const t = useWords();
  return (
    <article className={styles.agent} aria-label={t.chat.agent} data-live={live}>
      <Markdown text={text} live={live} />
      {cut && <p className={styles.cut}>{t.chat.partial}</p>}
      {!live && <MessageTools message={id} by="agent" />}
    </article>
  );
}

function Divider({ why }: { why: "restarted" | "retried" }) {
  const t = useWords();
  return (
    <p className={styles.divider} data-mark="attempt">
      <span>{t.chat[why]}</span>
    </p>
  );
}

/** Items are made anew for each frame; most say what they said before. */
function same(before: Item, after: Item): boolean {
  if (before.kind === "call" && after.kind === "call") {
    return (
      before.call === after.call &&
      before.result === after.result &&
      before.nth === after.nth &&
      before.started === after.started
    );
  }
  return JSON.stringify(before) === JSON.stringify(after);
}
