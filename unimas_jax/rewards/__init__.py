"""Rewards and credit rules: traces to credits, in NumPy."""
