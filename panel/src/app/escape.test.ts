import { describe, expect, it } from "vitest";
import { Layers } from "./escape";

describe("Escape", () => {
  it("closes what was opened last, and reaches the page when nothing is open", () => {
    const layers = new Layers();
    const heard: string[] = [];
    const add = (name: string, page = false) => layers.add(() => heard.push(name), page);
    expect(layers.press()).toBe(false);
    const closeMenu = add("menu");
    const leavePage = add("page", true);
    const closeDialog = add("dialog");
    layers.press();
    closeDialog();
    layers.press();
    closeMenu();
    expect(layers.press()).toBe(true);
    leavePage();
    expect(layers.press()).toBe(false);
    expect(heard).toEqual(["dialog", "menu", "page"]);
  });
});
