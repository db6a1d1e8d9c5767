import { Conversation } from "./Conversation";
import { NewConversation } from "./NewConversation";

export function ChatPage({ id }: { id?: string }) {
  return id === undefined ? <NewConversation /> : <Conversation id={id} />;
}
