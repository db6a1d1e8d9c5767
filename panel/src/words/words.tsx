import { createContext, type ReactNode, useCallback, useContext, useEffect, useMemo, useState } from "react";
import { Kept } from "../app/kept";
import { de } from "./de";
import { en, type Words } from "./en";

export const LANGUAGES = { en: asHere(en), de: asHere(de) } as const;
export type Language = keyof typeof LANGUAGES;

const kept = new Kept<string>("perdure-language", "localStorage");

interface Spoken {
  language: Language;
  speak(language: Language): void;
}

const Context = createContext<Spoken>({ language: "en", speak: () => undefined });

/** Times and numbers as this browser's region writes them, where it speaks the language: 14:00 in London, 2 PM in Boston. */
function asHere(words: Words): Words {
  const own = navigator.languages.find((each) => each.split("-")[0] === words.locale);
  return own ? { ...words, locale: own } : words;
}

export function WordsProvider({ children }: { children: ReactNode }) {
  const [language, setLanguage] = useState<Language>(preferred);
  useEffect(() => {
    document.documentElement.lang = language;
  }, [language]);
  const speak = useCallback((next: Language) => {
    kept.write(next);
    setLanguage(next);
  }, []);
  const spoken = useMemo(() => ({ language, speak }), [language, speak]);
  return <Context value={spoken}>{children}</Context>;
}

export function useWords(): Words {
  return LANGUAGES[useContext(Context).language];
}

export function useLanguage(): Spoken {
  return useContext(Context);
}

function preferred(): Language {
  const wanted = [kept.read(), ...navigator.languages.map((each) => each.slice(0, 2))];
  return wanted.find((each): each is Language => each !== undefined && Object.hasOwn(LANGUAGES, each)) ?? "en";
}
