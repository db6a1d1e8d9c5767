import { type ReactNode, useCallback, useEffect, useState } from "react";
import { Link, useLocation } from "wouter";
import { ConversationList } from "../chat/ConversationList";
import { useWords } from "../words/words";
import { useEscape } from "./escape";
import { useLine } from "./line";
import { Navigation } from "./Navigation";
import { NewVersion } from "./NewVersion";
import { Notices } from "./Notices";
import { Preferences } from "./Preferences";
import styles from "./shell.module.css";

/** Where the side is a drawer: as in shell.module.css. */
const DRAWER = "(width < 48rem)";

export function Shell({ children }: { children: ReactNode }) {
  const line = useLine();
  const t = useWords();
  const [open, setOpen] = useState(false);
  const show = useCallback(() => setOpen(window.matchMedia(DRAWER).matches), []);
  const [path] = useLocation();
  useEscape(open ? () => setOpen(false) : undefined);
  // biome-ignore lint/correctness/useExhaustiveDependencies: going somewhere closes the drawer
  useEffect(() => setOpen(false), [path]);
  return (
    <div className={styles.shell} data-open={open}>
      <header className={styles.bar}>
        <button type="button" className="quiet" aria-expanded={open} onClick={() => setOpen(!open)}>
          ☰<span className="unseen">{t.app.menu}</span>
        </button>
        <Link href="/" className={styles.brand}>
          Perdure
        </Link>
      </header>
      <aside className={styles.side}>
        <Link href="/" className={styles.brand}>
          Perdure
        </Link>
        <Navigation />
        <ConversationList onOpen={show} onClose={() => setOpen(false)} />
        <Preferences />
      </aside>
      {open && <button type="button" className={styles.veil} aria-label={t.app.close} onClick={() => setOpen(false)} />}
      <main className={styles.main}>
        <NewVersion />
        <Notices />
        {line === "signed-out" && (
          <p className={styles.banner} role="alert">
            {t.app.signedOut}
          </p>
        )}
        {children}
      </main>
    </div>
  );
}
