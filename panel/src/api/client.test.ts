// @vitest-environment jsdom
import { afterEach, expect, it, vi } from "vitest";
import { nudge } from "../stream/nudge";
import { call } from "./client";

afterEach(() => vi.unstubAllGlobals());

it("makes the lines find out when the server does not know who asks", async () => {
  const cut = vi.fn();
  nudge.addEventListener("cut", cut);
  vi.stubGlobal("fetch", async () => Response.json({ code: "UNAUTHORIZED", message: "Sign in." }, { status: 401 }));
  await expect(call("GET", "api/me")).rejects.toThrow("Sign in.");
  expect(cut).toHaveBeenCalledOnce();
});
