import { describe, expect, it } from "vitest";
import { de } from "./de";
import { en } from "./en";

/** Every string by its place; what takes something is called with it. */
function strings(words: object, place = ""): [string, string][] {
  return Object.entries(words).flatMap(([name, value]): [string, string][] => {
    const here = `${place}${name}`;
    if (typeof value === "string") return [[here, value]];
    if (typeof value === "function") return [[here, String(value("2", "3", "4"))]];
    return strings(value as object, `${here}.`);
  });
}

/** The same word in both languages. */
const SAME = new Set([
  "chat.agent",
  "chat.agentPicker",
  "chat.branchOf",
  "chat.code",
  "chat.exportAs",
  "chat.exportJsonl",
  "chat.exportMarkdown",
  "server.pid",
  "server.standard",
  "server.title",
  "app.server",
  "app.themes.system",
  "server.role.operator",
  "card.server",
  "tool.server",
  "turns.agent",
  "turns.filters",
  "turns.history",
  "turns.onlyStatus",
  "turns.status",
  "turns.text",
  "line.live",
]);

/** Sources as text: what a person reads comes from the catalogue alone. */
const SOURCES = import.meta.glob<string>("../**/*.tsx", { query: "?raw", import: "default", eager: true });
const SAID_DIRECTLY = [
  /<\/?[\w.]+[^<>]*>\s*([A-Za-z][^<>{}=();]*[a-z]{2}[^<>{}=();]*)\s*<\//g,
  /\b(?:aria-label|title|placeholder|alt)="([^"]+)"/g,
];

describe("the catalogue", () => {
  it("is where every word of the page is", () => {
    const found = Object.entries(SOURCES)
      .filter(([file]) => !file.includes(".test."))
      .flatMap(([file, source]) =>
        SAID_DIRECTLY.flatMap((form) => [...source.matchAll(form)].map((each) => [file, each[1]?.trim()])),
      );
    expect(Object.keys(SOURCES).length).toBeGreaterThan(40);
    expect(found.filter(([, text]) => text !== "Perdure")).toEqual([]);
  });

  it("has every string in every language", () => {
    expect(strings(de).map(([place]) => place)).toEqual(strings(en).map(([place]) => place));
    for (const [place, text] of strings(de)) expect(text.trim(), place).not.toBe("");
  });

  it("is translated", () => {
    const english = new Map(strings(en));
    const left = strings(de).filter(([place, text]) => english.get(place) === text && !SAME.has(place));
    expect(left).toEqual([]);
  });
});
