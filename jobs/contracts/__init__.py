"""Structs, errors and schemas that all of jobs/ shares."""
