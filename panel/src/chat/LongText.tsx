import { useState } from "react";
import { CopyButton } from "../app/CopyButton";
import { bytes } from "../words/figures";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import styles from "./tool.module.css";

const FOLDED = 2_000;
/** More is not put into the page: it can be downloaded. */
const MOST = 200_000;

/** Text of a tool: never formatted, its beginning first. */
export function LongText({ text, name }: { text: string; name: string }) {
  const t = useWords();
  const [all, setAll] = useState(false);
  const shown = text.slice(0, all ? MOST : FOLDED);
  const size = bytes(text.length, t.locale);
  return (
    <div className={styles.text}>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard */}
      <pre tabIndex={0}>
        {visible(shown)}
        {shown.length < text.length && "…"}
      </pre>
      <div className={styles.textButtons}>
        {text.length > FOLDED && !all && (
          <button type="button" className="quiet" onClick={() => setAll(true)}>
            {t.tool.showAll(size)}
          </button>
        )}
        {text.length > FOLDED && (
          <button type="button" className="quiet" onClick={() => download(text, name)}>
            {t.app.download}
          </button>
        )}
        <CopyButton text={() => text} />
      </div>
    </div>
  );
}

function download(text: string, name: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name.replace(/[^\w.-]/g, "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1_000);
}
