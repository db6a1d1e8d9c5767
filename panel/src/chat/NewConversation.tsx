import { useState } from "react";
import { useLocation } from "wouter";
import { useAgents } from "../api/queries";
import { ErrorText } from "../app/Failed";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import { Composer } from "./Composer";
import styles from "./chat.module.css";
import { useSend } from "./useSend";

export function NewConversation() {
  const t = useWords();
  const [, go] = useLocation();
  const { data, error } = useAgents();
  const [picked, setPicked] = useState<string>();
  const agents = data?.items ?? [];
  const agent = agents.find((each) => each.name === picked) ?? agents.find((each) => each.default);
  const send = useSend({ agent: agent?.name, onAccepted: ({ conversation }) => go(`/c/${conversation}`) });
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
        <ErrorText error={error} />
      </div>
      <Composer json={agent?.input === "json"} send={send} />
    </div>
  );
}
