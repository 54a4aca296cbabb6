"""The model zoo: one transformer for every supported family."""
