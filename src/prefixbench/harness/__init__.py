"""Scenario x variant cells in subprocesses."""
