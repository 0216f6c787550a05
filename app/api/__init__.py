"""The shapes of the API: requests, answers, problems, and the OpenAPI document."""
