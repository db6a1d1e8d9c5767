import type { ReactNode } from "react";
import { useWords } from "../words/words";
import styles from "./markdown.module.css";
import { followable } from "./safety";

/** Says where it leads. An address that is not of the web stays text. */
export function SafeLink({ address, children }: { address: string | undefined; children: ReactNode }) {
  const t = useWords();
  const url = followable(address);
  if (!url) {
    return (
      <span className={styles.blocked} title={t.chat.linkBlocked}>
        {children}
      </span>
    );
  }
  return (
    <a href={url.href} target="_blank" rel="noreferrer noopener nofollow" title={url.href}>
      {children}
      {url.host && <span className={styles.host}> ({url.host})</span>}
    </a>
  );
}

/** Images are not loaded: asking for one would tell its server what the conversation says. */
export function ImageLink({ address, text }: { address: string | undefined; text: string | undefined }) {
  const t = useWords();
  return (
    <SafeLink address={address}>
      [{t.chat.image}
      {text ? `: ${text}` : ""}]
    </SafeLink>
  );
}
