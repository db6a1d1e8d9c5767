/** Whether this is still the page that the server hands out. */

import { request } from "../api/client";

/** False also where the server does not say. */
export async function hasOtherPage(): Promise<boolean> {
  try {
    const response = await request("", { cache: "no-store" });
    return response.ok && isOther(await response.text(), document);
  } catch {
    return false;
  }
}

/** `html`: what the server hands out now; it may not be the page at all. The names of its scripts follow from what is in them. */
export function isOther(html: string, page: Document): boolean {
  const names = [...page.scripts].map((each) => each.src.split("/").at(-1) ?? "").filter(Boolean);
  return html.includes('name="perdure-root"') && names.some((name) => !html.includes(name));
}
