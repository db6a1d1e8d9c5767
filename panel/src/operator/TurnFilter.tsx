import { useSearchParams } from "wouter";
import { useAgents } from "../api/queries";
import type { TurnStatus } from "../api/schema";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import styles from "./operator.module.css";

export function TurnFilter() {
  const t = useWords();
  const [search, setSearch] = useSearchParams();
  const { data } = useAgents();
  const set = (name: string, value: string) =>
    setSearch(
      (old) => {
        const next = new URLSearchParams(old);
        if (value) next.set(name, value);
        else next.delete(name);
        return next;
      },
      { replace: true },
    );
  return (
    <div className={styles.filters}>
      <label>
        {t.turns.status}
        <select value={search.get("status") ?? ""} onChange={(event) => set("status", event.target.value)}>
          <option value="">{t.turns.all}</option>
          {(Object.keys(t.status) as TurnStatus[]).map((each) => (
            <option key={each} value={each}>
              {t.status[each]}
            </option>
          ))}
        </select>
      </label>
      <label>
        {t.turns.agent}
        <select value={search.get("agent") ?? ""} onChange={(event) => set("agent", event.target.value)}>
          <option value="">{t.turns.all}</option>
          {data?.items.map((each) => (
            <option key={each.name} value={each.name}>
              {visible(each.name)}
            </option>
          ))}
        </select>
      </label>
      <label>
        {t.turns.text}
        <input
          type="search"
          defaultValue={search.get("q") ?? ""}
          onKeyDown={(event) => event.key === "Enter" && set("q", event.currentTarget.value.trim())}
          onBlur={(event) => set("q", event.target.value.trim())}
        />
      </label>
      <label className={styles.check}>
        <input
          type="checkbox"
          checked={search.get("repeated") === "1"}
          onChange={(event) => set("repeated", event.target.checked ? "1" : "")}
        />
        {t.turns.onlyRepeated}
      </label>
    </div>
  );
}
