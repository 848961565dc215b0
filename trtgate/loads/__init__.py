"""Load on a streaming endpoint: what to send and when, the client that times it, what the times mean."""
