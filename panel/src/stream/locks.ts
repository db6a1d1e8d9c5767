/**
 * The browser's locks. Undefined where it has none (a page without a secure origin), and where it lets the page have none (a person
 * forbade it to keep anything).
 */
export async function usable(
  locks: LockManager | undefined = globalThis.navigator?.locks,
): Promise<LockManager | undefined> {
  try {
    await locks?.query();
    return locks;
  } catch {
    return undefined;
  }
}
