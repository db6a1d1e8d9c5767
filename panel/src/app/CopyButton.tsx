import { useEffect, useState } from "react";
import { useWords } from "../words/words";

export function CopyButton({ text }: { text: () => string }) {
  const t = useWords();
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return;
    const timer = setTimeout(() => setCopied(false), 1_500);
    return () => clearTimeout(timer);
  }, [copied]);
  const copy = () => {
    void navigator.clipboard?.writeText(text()).then(() => setCopied(true));
  };
  return (
    <button type="button" className="quiet" onClick={copy}>
      {copied ? t.app.copied : t.app.copy}
    </button>
  );
}
