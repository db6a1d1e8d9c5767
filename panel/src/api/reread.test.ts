import { QueryClient, QueryObserver } from "@tanstack/react-query";
import { expect, test, vi } from "vitest";
import { PATIENCE_MS, REST_MS, Rereads, reread } from "./reread";

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

test("however many changes come while something is read, the read comes to its end and one more follows", async () => {
  vi.useFakeTimers();
  try {
    const reads: { key: unknown; end: () => void }[] = [];
    const rereads = new Rereads((key) => new Promise((end) => reads.push({ key, end })));
    for (let n = 0; n < 20; n++) rereads.tell(["turns"]);
    rereads.tell(["turn", "t"]);
    expect(reads.map(({ key }) => key)).toEqual([["turns"], ["turn", "t"]]);
    reads[0]?.end();
    await vi.advanceTimersByTimeAsync(REST_MS);
    expect(reads).toHaveLength(3);
    reads[2]?.end();
    await vi.advanceTimersByTimeAsync(REST_MS);
    expect(reads).toHaveLength(3);
    rereads.tell(["turns"]);
    expect(reads).toHaveLength(4);
    rereads.tell(["turns"]);
    await vi.advanceTimersByTimeAsync(PATIENCE_MS + REST_MS);
    expect(reads).toHaveLength(5);
  } finally {
    vi.useRealTimers();
  }
});
