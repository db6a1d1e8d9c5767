import { useEffect } from "react";
import { useLocation } from "wouter";
import { useAgents } from "../api/queries";
import { useDraft } from "../app/drafts";
import { Refused } from "../app/Failed";
import { useLine } from "../app/line";
import type { LineState } from "../stream/connection";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import { Composer } from "./Composer";
import styles from "./chat.module.css";
import { courier } from "./courier";
import { Line } from "./Line";
import { UnsentMessage } from "./UnsentMessage";
import { useSend } from "./useSend";

/** Worth a word where no conversation shows how its own line is. */
const TROUBLED: ReadonlySet<LineState> = new Set(["reconnecting", "restarting", "waiting"]);

export function NewConversation() {
  const t = useWords();
  const { data, error } = useAgents();
  const [picked, setPicked] = useDraft("agent");
  const agents = data?.items ?? [];
  const agent = agents.find((each) => each.name === picked) ?? agents.find((each) => each.default);
  const send = useSend(null, agent?.name ?? null);
  const line = useLine();
  useFollowing();
  return (
    <div className={styles.page}>
      <div className={styles.welcome}>
        <h1>{t.chat.empty}</h1>
        <p>{t.chat.emptyHint}</p>
        {agents.length > 1 && (
          <label>
            {t.chat.agentPicker}{" "}
            <select value={agent?.name} onChange={(event) => setPicked(event.target.value)}>
              {agents.map((each) => (
                <option key={each.name} value={each.name}>
                  {visible(each.name)}
                  {each.model ? ` (${visible(each.model)})` : ""}
                </option>
              ))}
            </select>
          </label>
        )}
        {agent?.problems.map((problem) => (
          <p key={problem} className="error">
            {visible(problem)}
          </p>
        ))}
        <Refused error={error} />
        {TROUBLED.has(line) && <Line state={line} />}
      </div>
      {send.unsent.length > 0 && (
        <div className={styles.log}>
          {send.unsent.map(({ key, text, hold }) => (
            <UnsentMessage key={key} text={text} hold={hold} />
          ))}
        </div>
      )}
      <Composer conversation={null} json={agent?.input === "json"} send={send} />
    </div>
  );
}

/** To the conversation that begins with what was sent here. */
function useFollowing(): void {
  const [, go] = useLocation();
  useEffect(
    () =>
      courier.listen({
        onAccepted: (letter, { conversation }) => {
          if (letter.conversation === null) go(`/c/${conversation}`);
        },
      }),
    [go],
  );
}
