import { Link } from "wouter";
import type { BranchPointReply, BranchReply } from "../api/schema";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import styles from "./chat.module.css";

/** `‹ 2/3 ›`: the ways that begin here, in the order in which they were made. */
export function BranchPicker({ point }: { point: BranchPointReply }) {
  const t = useWords();
  const { branches } = point;
  const here = branches.findIndex((each) => each.current);
  if (branches.length < 2 || here < 0) return null;
  return (
    <nav className={styles.branches} aria-label={t.chat.branches}>
      <Step branch={branches[here - 1]} label={t.chat.previousBranch} sign="‹" />
      <span>{t.chat.branchOf(here + 1, branches.length)}</span>
      <Step branch={branches[here + 1]} label={t.chat.nextBranch} sign="›" />
    </nav>
  );
}

function Step({ branch, label, sign }: { branch: BranchReply | undefined; label: string; sign: string }) {
  if (!branch) return <span aria-hidden="true">{sign}</span>;
  return (
    <Link href={`/c/${branch.conversation}`} aria-label={label} title={visible(branch.title)}>
      {sign}
    </Link>
  );
}
