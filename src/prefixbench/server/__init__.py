"""Is a server: OpenAI routes and vLLM's metrics over a simulated prefix cache."""
