/** Something that outlives a reload of this tab. A browser that keeps nothing, or has no room, is no reason to fail. */

export class Kept<T> {
  constructor(private readonly name: string) {}

  read(): T | undefined {
    try {
      const text = sessionStorage.getItem(this.name);
      return text === null ? undefined : (JSON.parse(text) as T);
    } catch {
      return undefined;
    }
  }

  write(value: T): void {
    try {
      sessionStorage.setItem(this.name, JSON.stringify(value));
    } catch {
      // It lives as long as the page.
    }
  }
}
