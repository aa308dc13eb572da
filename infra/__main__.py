"""Where Pulumi enters: `main` of Pulumi.yaml."""

from infra.program import main

main()
