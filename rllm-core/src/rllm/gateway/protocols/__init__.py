"""The wire protocols that agents speak, each an adapter between its bytes and the gateway's own shapes."""
