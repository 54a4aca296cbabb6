"""Reinforcement learning of multi-agent LLM workflows in JAX."""
