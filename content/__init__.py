"""What a result is made of: pure functions over text and bytes."""
