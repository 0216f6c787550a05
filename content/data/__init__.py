"""Results as data: values, tables, JMESPath, and slices of the value of a query."""

MAX_EXPRESSION_CHARS = 4096
"""The longest JMESPath expression."""
