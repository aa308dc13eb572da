"""Starts the Pulumi program of the stack (`main` of Pulumi.yaml)."""

from infra.program import main

main()
