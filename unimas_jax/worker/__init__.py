"""One host's models: engine, buffer and learner."""
