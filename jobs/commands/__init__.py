"""One module a verb: `configure(parser)` says what can be typed, the rest does it and prints."""
