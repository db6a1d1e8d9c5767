import { Link, useRoute } from "wouter";
import { useApprovals } from "../api/queries";
import { useWords } from "../words/words";
import styles from "./shell.module.css";

export function Navigation() {
  const t = useWords();
  const { data, hasNextPage } = useApprovals();
  const waiting = data?.pages.reduce((sum, page) => sum + page.items.length, 0) ?? 0;
  return (
    <nav className={styles.navigation} aria-label={t.app.navigation}>
      <Section href="/approvals" label={t.app.inbox} count={hasNextPage ? `${waiting}+` : waiting} />
      <Section href="/turns" label={t.app.turns} />
      <Section href="/server" label={t.app.server} />
    </nav>
  );
}

function Section({ href, label, count = 0 }: { href: string; label: string; count?: number | string }) {
  const [here] = useRoute(`${href}/*?`);
  return (
    <Link href={href} aria-current={here ? "page" : undefined}>
      {label}
      {count !== 0 && <span className={styles.count}>{count}</span>}
    </Link>
  );
}
