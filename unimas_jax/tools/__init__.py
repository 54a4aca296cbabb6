"""Tools that workflows call: retrieval and user tools."""
