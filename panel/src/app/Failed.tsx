import { Link } from "wouter";
import { ApiError } from "../api/client";
import { useWords } from "../words/words";

export function Failed({ retry }: { retry: () => void }) {
  const t = useWords();
  return (
    <div className="empty" role="alert">
      <p>{t.app.broken}</p>
      <button type="button" onClick={retry}>
        {t.app.again}
      </button>
    </div>
  );
}

export function NotFound() {
  const t = useWords();
  return (
    <div className="empty">
      <p>{t.app.notFound}</p>
      <Link href="/">{t.app.toChat}</Link>
    </div>
  );
}

/** What the server said, or that it said nothing. */
export function ErrorText({ error }: { error: Error | null }) {
  const t = useWords();
  if (!error) return null;
  const unreachable = error instanceof ApiError && error.code === "UNREACHABLE";
  return (
    <p className="error" role="alert">
      {unreachable ? t.app.unreachable : error.message}
    </p>
  );
}

/** The same of what is read by itself: that nobody is signed in is told once, above. */
export function Refused({ error }: { error: Error | null }) {
  return error instanceof ApiError && error.status === 401 ? null : <ErrorText error={error} />;
}
