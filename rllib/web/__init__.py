"""HTTP: checks of requests, bodies in JSON and MessagePack, listening sockets. For all servers of the library."""
