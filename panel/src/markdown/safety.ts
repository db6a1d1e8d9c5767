/** What a model's Markdown may become: text, and links that a person may choose to follow. */

import type { Nodes, Root } from "hast";
import { defaultSchema } from "rehype-sanitize";

/** Raw HTML is shown as the text it is. */
export function rawAsText() {
  return (tree: Root): void => turn(tree);
}

function turn(node: Nodes): void {
  if (!("children" in node)) return;
  node.children.forEach((child, n) => {
    if ((child as { type: string }).type === "raw") {
      node.children[n] = { type: "text", value: (child as unknown as { value: string }).value };
    } else {
      turn(child);
    }
  });
}

/** No element but those of Markdown itself; ids keep the prefix that keeps them from ours. */
export const schema: typeof defaultSchema = {
  ...defaultSchema,
  tagNames: (defaultSchema.tagNames ?? []).filter(
    (name) => !["picture", "source", "details", "summary"].includes(name),
  ),
};

const FOLLOWED = new Set(["http:", "https:", "mailto:"]);

/** The address of a link that may be followed; null for every other scheme and for relative ones. */
export function followable(address: string | undefined): URL | null {
  try {
    const url = new URL(address ?? "");
    return FOLLOWED.has(url.protocol) ? url : null;
  } catch {
    return null;
  }
}
