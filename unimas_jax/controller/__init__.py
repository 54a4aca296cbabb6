"""The driver's side: episodes, routing and the training loop."""
