"""Language models: checkpoints, tokenizer, the transformer."""
