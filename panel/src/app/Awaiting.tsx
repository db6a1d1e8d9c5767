import { useWords } from "../words/words";

/** Something is read for the first time. `failures`: how often the server did not answer. */
export function Awaiting({ failures }: { failures: number }) {
  const t = useWords();
  return (
    <p className="empty" role="status">
      {failures > 0 ? t.app.awaiting : t.app.loading}
    </p>
  );
}
