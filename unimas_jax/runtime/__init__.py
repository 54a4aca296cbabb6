"""Joins controller and workers, in one process or through Ray."""
