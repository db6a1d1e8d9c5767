import { useEffect } from "react";
import { useLocation } from "wouter";
import { useAgents } from "../api/queries";
import { useDraft } from "../app/drafts";
import { Refused } from "../app/Failed";
import { useLine } from "../app/line";
import { ReachContext, useReach } from "../app/reach";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import { Composer } from "./Composer";
import styles from "./chat.module.css";
import { courier } from "./courier";
import { Line } from "./Line";
import { lineShown, type Shown } from "./lineShown";
import { UnsentMessage } from "./UnsentMessage";
import { useSend } from "./useSend";

/** Worth a word where no conversation shows how its own line is. */
const TROUBLED: ReadonlySet<Shown> = new Set(["reconnecting", "restarting", "waiting", "unreachable", "disconnected"]);

export function NewConversation() {
  const t = useWords();
  const { data, error } = useAgents();
  const [picked, setPicked] = useDraft("agent");
  const agents = data?.items ?? [];
  const agent = agents.find((each) => each.name === picked) ?? agents.find((each) => each.default) ?? agents[0];
  const send = useSend(null, agent?.name ?? null);
  const line = useLine();
  const reach = useReach(agent?.name);
  useFollowing();
  return (
    <ReachContext value={reach}>
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
                    {each.reach === "reachable" ? "" : ` · ${t.line[each.reach]}`}
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
          {data && agents.length === 0 && <p role="status">{t.chat.noAgent}</p>}
          {TROUBLED.has(lineShown(line, reach)) && <Line state={line} reach={reach} />}
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
    </ReachContext>
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
