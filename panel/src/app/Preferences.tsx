import { useState } from "react";
import { LANGUAGES, type Language, useLanguage, useWords } from "../words/words";
import styles from "./shell.module.css";
import { chooseTheme, chosenTheme, THEMES, type Theme } from "./theme";

export function Preferences() {
  const t = useWords();
  const { language, speak } = useLanguage();
  const [theme, setTheme] = useState(chosenTheme);
  return (
    <div className={styles.preferences}>
      <select
        aria-label={t.app.theme}
        value={theme}
        onChange={(event) => {
          const next = event.target.value as Theme;
          chooseTheme(next);
          setTheme(next);
        }}
      >
        {THEMES.map((each) => (
          <option key={each} value={each}>
            {t.app.themes[each]}
          </option>
        ))}
      </select>
      <select aria-label={t.app.language} value={language} onChange={(event) => speak(event.target.value as Language)}>
        {Object.entries(LANGUAGES).map(([each, words]) => (
          <option key={each} value={each}>
            {words.name}
          </option>
        ))}
      </select>
    </div>
  );
}
