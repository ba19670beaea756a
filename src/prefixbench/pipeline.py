"""The whole flow of the specification on one page."""
