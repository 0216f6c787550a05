"""JMESPath over stored data, each query in a confined process of its own."""

from extraction.queries.messages import Query
from extraction.queries.runner import Queries

__all__ = ["Queries", "Query"]
