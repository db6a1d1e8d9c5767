import { isValidElement, type ReactNode, useRef } from "react";
import { CopyButton } from "../app/CopyButton";
import { useWords } from "../words/words";
import styles from "./markdown.module.css";

/** A block of code with its language and a way to copy it. */
export function CodeBlock({ children }: { children: ReactNode }) {
  const t = useWords();
  const code = useRef<HTMLPreElement>(null);
  return (
    <figure className={styles.code}>
      <figcaption>
        <span>{languageOf(children) ?? t.chat.code}</span>
        <CopyButton text={() => code.current?.textContent ?? ""} />
      </figcaption>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard */}
      <pre ref={code} tabIndex={0}>
        {children}
      </pre>
    </figure>
  );
}

function languageOf(children: ReactNode): string | undefined {
  if (!isValidElement<{ className?: string }>(children)) return undefined;
  return /language-([\w+#-]{1,20})/.exec(children.props.className ?? "")?.[1];
}
