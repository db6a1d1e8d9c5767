/** About 11 KB with headings, prose, lists, tables and code, as models write. */

export const UPDATES = 305;
export const UPDATE_MS = 20;

const section = (n: number) => `## Part ${n}

The **service** keeps a _journal_ of what it has done, so that \`step ${n}\` is never repeated. A process may die at any
moment; what was committed before is used from its record, and [the rest](https://example.org/${n}) goes on.

1. read the last checkpoint
2. run what is pending, with key \`k-${n}\`
3. record the result before anything else
   - once for each call
   - in the order in which they ended

| place | before | after |
|-------|--------|-------|
| accept | ${n} | ${n + 1} |
| claim | ${n * 2} | ${n * 2 + 1} |

\`\`\`python
async def step_${n}(journal: Journal, call: Call) -> Result:
    """Runs a call once."""
    known = await journal.result(call.key)
    if known is not None:
        return known  # it was recorded by an earlier attempt
    await journal.intend(call, attempt=${n})
    return await journal.record(call, await call.run())
\`\`\`

> What was seen is what is recorded, ${n} times out of ${n}.

`;

export const answer = Array.from({ length: 11 }, (_, n) => section(n + 1)).join("");
