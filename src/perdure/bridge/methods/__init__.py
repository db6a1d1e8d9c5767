"""Everything that can be asked of an agent on its subject: `table`."""
