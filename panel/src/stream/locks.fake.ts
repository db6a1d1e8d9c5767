/** Web Locks as the tests need them: exclusive, in order, with `ifAvailable`, `signal` and `query`. */

interface Waiting {
  name: string;
  grant: () => void;
}

export class FakeLocks {
  private readonly held = new Set<string>();
  private waiting: Waiting[] = [];

  readonly request = async (name: string, ...more: unknown[]): Promise<unknown> => {
    const use = more.at(-1) as (lock: { name: string } | null) => unknown;
    const options = (more.length > 1 ? more[0] : {}) as { ifAvailable?: boolean; signal?: AbortSignal };
    if (options.ifAvailable && this.held.has(name)) return use(null);
    if (this.held.has(name)) await this.queue(name, options.signal);
    this.held.add(name);
    try {
      return await use({ name });
    } finally {
      this.release(name);
    }
  };

  readonly query = async () => ({
    held: [...this.held].map((name) => ({ name })),
    pending: this.waiting.map(({ name }) => ({ name })),
  });

  manager(): LockManager {
    return this as unknown as LockManager;
  }

  private queue(name: string, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const entry = { name, grant: resolve };
      this.waiting.push(entry);
      signal?.addEventListener("abort", () => {
        this.waiting = this.waiting.filter((each) => each !== entry);
        reject(signal.reason);
      });
    });
  }

  private release(name: string): void {
    const next = this.waiting.find((each) => each.name === name);
    this.waiting = this.waiting.filter((each) => each !== next);
    if (next) next.grant();
    else this.held.delete(name);
  }
}
