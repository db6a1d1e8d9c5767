import { QueryClient, QueryObserver } from "@tanstack/react-query";
import { expect, test } from "vitest";
import { reread } from "./reread";

test("a change during a first read is seen although that read was answered before it", async () => {
  const client = new QueryClient();
  const answers: ((value: string) => void)[] = [];
  const observer = new QueryObserver(client, {
    queryKey: ["turn", "t"],
    queryFn: () => new Promise<string>((resolve) => answers.push(resolve)),
    staleTime: Number.POSITIVE_INFINITY,
  });
  const end = observer.subscribe(() => undefined);
  const again = reread(client, ["turn", "t"]);
  answers[0]?.("before");
  await expect.poll(() => answers.length).toBe(2);
  answers[1]?.("after");
  await again;
  expect(observer.getCurrentResult().data).toBe("after");
  end();
});
