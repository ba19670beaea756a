"""Arithmetic of the plan: lengths, groups, prefixes, order, proof; knows no text."""
