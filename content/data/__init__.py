"""Results as data: values, tables, JMESPath, and slices of the value of a query."""
