"""What a server's cache and scheduler would do; knows no target, no text, no network."""
