"""Reads and writes other tools' formats."""
