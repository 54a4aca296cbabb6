"""Data sources: random-access sequences of queries."""
