"""Perdure's way over NATS: subjects, the connection, JSON-RPC both ways, the stream of committed events, the live feed."""
