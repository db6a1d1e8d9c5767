import { useState } from "react";
import { useSearchParams } from "wouter";
import { useAgents } from "../api/queries";
import type { TurnStatus } from "../api/schema";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import { changed, choices, type FilterName } from "./filters";
import styles from "./operator.module.css";

/** Each change is a place to come back to: Back takes it away again. */
export function TurnFilter() {
  const t = useWords();
  const [search, setSearch] = useSearchParams();
  const { data } = useAgents();
  const chosen = (name: FilterName) => search.get(name) ?? "";
  const set = (name: FilterName, value: string) => {
    if (value !== chosen(name)) setSearch((old) => changed(old, name, value));
  };
  const agents = data?.items.map((each) => each.name) ?? [];
  return (
    <search className={styles.filters} aria-label={t.turns.filters}>
      <label>
        {t.turns.status}
        <select value={chosen("status")} onChange={(event) => set("status", event.target.value)}>
          <option value="">{t.turns.all}</option>
          {choices(Object.keys(t.status), chosen("status")).map((each) => (
            <option key={each} value={each}>
              {t.status[each as TurnStatus] ?? each}
            </option>
          ))}
        </select>
      </label>
      <label>
        {t.turns.agent}
        <select value={chosen("agent")} onChange={(event) => set("agent", event.target.value)}>
          <option value="">{t.turns.all}</option>
          {choices(agents, chosen("agent")).map((each) => (
            <option key={each} value={each}>
              {visible(each)}
            </option>
          ))}
        </select>
      </label>
      <TextFilter kept={chosen("q")} onAsk={(text) => set("q", text)} />
      <label className={styles.check}>
        <input
          type="checkbox"
          checked={chosen("repeated") === "1"}
          onChange={(event) => set("repeated", event.target.checked ? "1" : "")}
        />
        {t.turns.onlyRepeated}
      </label>
    </search>
  );
}

/** What is typed is asked for once it is done; what the address says replaces it. */
function TextFilter({ kept, onAsk }: { kept: string; onAsk(text: string): void }) {
  const t = useWords();
  const [typed, setTyped] = useState(kept);
  const [known, setKnown] = useState(kept);
  if (known !== kept) {
    setKnown(kept);
    setTyped(kept);
  }
  return (
    <label>
      {t.turns.text}
      <input
        type="search"
        value={typed}
        maxLength={500}
        onChange={(event) => {
          setTyped(event.target.value);
          if (event.target.value === "") onAsk("");
        }}
        onKeyDown={(event) => event.key === "Enter" && onAsk(typed.trim())}
        onBlur={() => onAsk(typed.trim())}
      />
    </label>
  );
}
