"""What a client makes of the broadcast adapter, and what of it stays with the client."""
