import { Link } from "wouter";
import { ApiError } from "../api/client";
import { faultOf } from "../words/faults";
import { useWords } from "../words/words";
import { FaultText } from "./FaultText";

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
  return <Nothing why={t.app.notFound} href="/" way={t.app.toChat} />;
}

/** Why there is nothing where a person looks, and a way on. */
export function Nothing({ why, href, way }: { why: string; href: string; way: string }) {
  return (
    <div className="empty" role="status">
      <h1>{why}</h1>
      <Link href={href}>{way}</Link>
    </div>
  );
}

/** What the server answered, or that it did not. */
export function ErrorText({ error }: { error: Error | null }) {
  const t = useWords();
  if (!error) return null;
  return (
    <p className="error" role="alert">
      <FaultText fault={faultOf(error, t)} />
    </p>
  );
}

/** The same of what is read by itself: that nobody is signed in is told once, above. */
export function Refused({ error }: { error: Error | null }) {
  return error instanceof ApiError && error.status === 401 ? null : <ErrorText error={error} />;
}
