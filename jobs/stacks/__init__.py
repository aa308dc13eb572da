"""What a stack is, what `pulumi up` would change, what it costs."""
