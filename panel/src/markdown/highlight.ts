/** Colours code by classes alone: a strict policy allows no inline styles. One set of grammars serves the whole page. */

import type { Element, ElementContent, Nodes, Root } from "hast";
import { common, createLowlight } from "lowlight";

const grammars = createLowlight(common);

/** Longer code stays plain: colouring it would hold the page up. */
const LONGEST = 50_000;

export function highlight() {
  return (tree: Root): void => visit(tree);
}

function visit(node: Nodes): void {
  if (!("children" in node)) return;
  for (const child of node.children) {
    if (child.type === "element" && child.tagName === "pre") colour(child);
    else visit(child);
  }
}

function colour(pre: Element): void {
  const [code] = pre.children;
  if (code?.type !== "element" || code.tagName !== "code") return;
  const language = languageOf(code);
  const text = textOf(code);
  if (!language || !grammars.registered(language) || text.length > LONGEST) return;
  code.children = grammars.highlight(language, text).children as ElementContent[];
}

function languageOf(code: Element): string | undefined {
  const names = code.properties.className;
  const found = Array.isArray(names) ? names.map(String).find((name) => name.startsWith("language-")) : undefined;
  return found?.slice("language-".length).toLowerCase();
}

function textOf(node: Element): string {
  return node.children.map((child) => (child.type === "text" ? child.value : "")).join("");
}
