/** Where this page lives. The server writes the way up to the root into the page, so any prefix of a proxy works. */

function rootPath(): string {
  const way = document.querySelector<HTMLMetaElement>('meta[name="perdure-root"]')?.content ?? "./";
  return new URL(way, window.location.href).pathname;
}

/** Ends with a slash: `/`, or `/agents/` behind a proxy. */
export const ROOT = rootPath();

/** Names locks and channels of this server alone, when several share an origin. */
export const SCOPE = `perdure:${ROOT}`;

/** Links of the page itself are relative to where it was opened: they must not move when the address does. */
export function holdLinks(): void {
  for (const link of document.querySelectorAll<HTMLLinkElement>("head link[href]"))
    link.setAttribute("href", link.href);
}

export function address(path: string): string {
  return ROOT + path.replace(/^\//, "");
}
