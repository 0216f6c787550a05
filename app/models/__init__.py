"""What is known of models, their windows and tokenizers, and what their calls may cost."""
