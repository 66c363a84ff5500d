"""What single features cost: accounts, the client, gRPC, light topics."""
