"""Reads finished files to explain them: latency, reconciliation, reports."""
