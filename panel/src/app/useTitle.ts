import { useEffect } from "react";

const NAME = "Perdure";

/** What the browser calls the tab while this is shown; undefined: it is not known yet. */
export function useTitle(title: string | undefined): void {
  useEffect(() => {
    if (title === undefined) return;
    document.title = `${title} · ${NAME}`;
    return () => {
      document.title = NAME;
    };
  }, [title]);
}
