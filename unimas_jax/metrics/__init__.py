"""Metric names, writers and progress."""
