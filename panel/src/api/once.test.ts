import { expect, it } from "vitest";
import { once } from "./once";

it("asks once for two clicks in a row, and again once that is answered", () => {
  const sent: string[] = [];
  let answer: () => void = () => undefined;
  const mutation = {
    mutate(variables: string, { onSettled }: { onSettled(): void }) {
      sent.push(variables);
      answer = onSettled;
    },
  };
  const asked = { current: false };
  once(asked, mutation, "first click");
  once(asked, mutation, "second click");
  answer();
  once(asked, mutation, "third click");
  expect(sent).toEqual(["first click", "third click"]);
});
