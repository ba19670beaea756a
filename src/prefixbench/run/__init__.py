"""Talks to a server: sends in the planned order, records each request, reads the counters."""
