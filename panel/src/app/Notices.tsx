import { useWords } from "../words/words";
import { dismiss, useNotices } from "./notify";
import styles from "./shell.module.css";

export function Notices() {
  const t = useWords();
  return useNotices().map((each) => (
    <p key={each.id} className={styles.banner} role="alert">
      {each.text}
      <button type="button" className="quiet" onClick={() => dismiss(each.id)}>
        {t.app.close}
      </button>
    </p>
  ));
}
