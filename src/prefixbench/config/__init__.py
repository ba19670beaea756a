"""What the user asks for: frozen pydantic models, one file a section, all errors at once."""
