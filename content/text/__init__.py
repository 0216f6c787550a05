"""Text: decoding, cutting at character boundaries, previews, line numbers that a tool wrote."""
