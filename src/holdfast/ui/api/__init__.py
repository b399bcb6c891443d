"""The HTTP API: routes, operations that read and write, idempotency, problems, and the OpenAPI document."""
