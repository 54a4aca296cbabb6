"""State on disk: Orbax checkpoints and Hugging Face folders."""
