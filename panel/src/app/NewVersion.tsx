import { useEffect, useRef, useState } from "react";
import { useWords } from "../words/words";
import { useLine } from "./line";
import styles from "./shell.module.css";
import { hasOtherPage } from "./version";

/** The server was updated since the page was opened. What is open goes on; a reload brings what belongs to the server. */
export function NewVersion() {
  const t = useWords();
  if (!useOutdated()) return null;
  return (
    <p className={styles.banner} role="alert">
      {t.app.newVersion}{" "}
      <button type="button" onClick={() => window.location.reload()}>
        {t.app.reload}
      </button>
    </p>
  );
}

/** Asked whenever the server is there again after it was away. */
function useOutdated(): boolean {
  const line = useLine();
  const away = useRef(false);
  const [outdated, setOutdated] = useState(false);
  useEffect(() => {
    if (line === "reconnecting" || line === "restarting") away.current = true;
    if (line !== "live" || !away.current) return;
    away.current = false;
    void hasOtherPage().then(setOutdated);
  }, [line]);
  return outdated;
}
