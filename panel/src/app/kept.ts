/** Something that outlives a reload: of this tab, or for all tabs to come. A browser that keeps nothing, or has no room, is no reason to fail. */

export class Kept<T> {
  constructor(
    private readonly name: string,
    private readonly where: "sessionStorage" | "localStorage" = "sessionStorage",
  ) {}

  read(): T | undefined {
    try {
      const text = globalThis[this.where].getItem(this.name);
      return text === null ? undefined : (JSON.parse(text) as T);
    } catch {
      return undefined;
    }
  }

  write(value: T): void {
    try {
      globalThis[this.where].setItem(this.name, JSON.stringify(value));
    } catch {
      // It lives as long as the page.
    }
  }
}
