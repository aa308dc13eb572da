"""The policy pack: what every cloud stack must hold to, judged on what it declares."""
