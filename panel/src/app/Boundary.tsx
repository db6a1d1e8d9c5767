import { Component, type ReactNode } from "react";

interface Props {
  children: ReactNode;
  fallback(retry: () => void): ReactNode;
}

/** What fails inside is replaced; the rest of the page stays. */
export class Boundary extends Component<Props, { failed: boolean }> {
  override state = { failed: false };

  static getDerivedStateFromError(): { failed: boolean } {
    return { failed: true };
  }

  override render(): ReactNode {
    return this.state.failed ? this.props.fallback(() => this.setState({ failed: false })) : this.props.children;
  }
}
