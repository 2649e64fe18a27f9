"""Messages between the processes of a session: layout, mailboxes, requests to the node."""
