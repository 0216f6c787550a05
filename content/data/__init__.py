"""Data: a result as a value, JMESPath over it, and the part of the answer that fits a cap."""
