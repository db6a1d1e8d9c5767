import { describe, expect, it } from "vitest";
import type { LineState } from "../stream/connection";
import { lineShown } from "./lineShown";

describe("the indicator", () => {
  it.each<LineState>(["live", "catching-up", "unfollowed"])(
    "tells of an agent that is away while the line is %s",
    (line) => {
      expect(lineShown(line, "unreachable")).toBe("unreachable");
      expect(lineShown(line, "disconnected")).toBe("disconnected");
      expect(lineShown(line, "reachable")).toBe(line);
    },
  );

  it.each<LineState>(["connecting", "reconnecting", "restarting", "waiting", "signed-out", "gone", "missing"])(
    "tells first that the line is %s: nobody knows of the agent then",
    (line) => expect(lineShown(line, "unreachable")).toBe(line),
  );
});
