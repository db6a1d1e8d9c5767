// @vitest-environment jsdom
import { expect, it } from "vitest";
import { isOther } from "./version";

const handedOut = (name: string) =>
  `<meta name="perdure-root" content="./"><script type="module" src="./assets/index-${name}.js"></script>`;

it("knows the page of another version, and no other answer for one", () => {
  document.head.innerHTML = handedOut("abc");
  expect(isOther(handedOut("abc"), document)).toBe(false);
  expect(isOther(handedOut("xyz"), document)).toBe(true);
  expect(isOther("<p>The panel is not built.</p>", document)).toBe(false);
  expect(isOther("<p>Sign in to the proxy.</p>", document)).toBe(false);
});
