"""Workflow engine, prompts, formats and built-in workflows."""
