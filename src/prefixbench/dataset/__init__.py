"""A data set on disk: manifest, writer, reader; streams both ways."""
