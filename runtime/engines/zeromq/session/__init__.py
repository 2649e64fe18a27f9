"""Starting a session, joining it, and the processes that workers are forked from."""
