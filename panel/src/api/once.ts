import { useRef } from "react";

interface Mutation<V> {
  mutate(variables: V, options: { onSettled(): void }): void;
}

/** Its `mutate`, which takes no second click that comes before the first one could switch the button off. */
export function useOnce<V>(mutation: Mutation<V>): (variables: V) => void {
  const asked = useRef(false);
  return (variables) => once(asked, mutation, variables);
}

/** `asked`: whether an answer is awaited. */
export function once<V>(asked: { current: boolean }, mutation: Mutation<V>, variables: V): void {
  if (asked.current) return;
  asked.current = true;
  mutation.mutate(variables, {
    onSettled: () => {
      asked.current = false;
    },
  });
}
