import { useEffect, useState } from "react";
import { useReady } from "../api/queries";
import { visible } from "../words/visible";
import styles from "./chat.module.css";

const PATIENCE_MS = 10_000;

/** Below a turn that takes long: what is wrong with the server, if anything is. It may be why nothing comes. */
export function Stalled() {
  const [late, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), PATIENCE_MS);
    return () => clearTimeout(timer);
  }, []);
  const { data } = useReady(late);
  return data?.reasons?.map((reason) => (
    <p key={reason} className={styles.usage} role="status">
      {visible(reason)}
    </p>
  ));
}
