"""The shapes of the API: bodies, requests, answers, problems, and the OpenAPI document.

POST /results is read and answered with msgspec, which its rate needs; all other routes use FastAPI's own
models. Both appear in one document, and in one form of errors.
"""
