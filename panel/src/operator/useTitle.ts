import { useEffect } from "react";

/** What the browser calls the tab while a view is shown. */
export function useTitle(title: string): void {
  useEffect(() => {
    const before = document.title;
    document.title = `${title} · Perdure`;
    return () => {
      document.title = before;
    };
  }, [title]);
}
