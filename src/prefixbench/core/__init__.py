"""Words every room speaks: tally, blocks, records, seeds, clock, errors, log."""
