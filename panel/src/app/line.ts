/** How the page's own line to the server is: not that of one conversation. */

import { createContext, useContext } from "react";
import type { LineState } from "../stream/connection";

export const LineContext = createContext<LineState>("connecting");

export function useLine(): LineState {
  return useContext(LineContext);
}
