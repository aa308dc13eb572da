"""One module a verb: each parses its options, calls, prints. `register(app)` adds it."""
