import { useEffect, useState } from "react";
import { useWords } from "../words/words";
import styles from "./shell.module.css";

/** A part of the page that is not there any more: the server was updated since the page was opened. */
export function NewVersion() {
  const t = useWords();
  const [outdated, setOutdated] = useState(false);
  useEffect(() => {
    const tell = (event: Event) => {
      event.preventDefault();
      setOutdated(true);
    };
    window.addEventListener("vite:preloadError", tell);
    return () => window.removeEventListener("vite:preloadError", tell);
  }, []);
  if (!outdated) return null;
  return (
    <p className={styles.banner} role="alert">
      {t.app.newVersion}{" "}
      <button type="button" onClick={() => window.location.reload()}>
        {t.app.reload}
      </button>
    </p>
  );
}
