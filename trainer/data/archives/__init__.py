"""Reads tar and zip archives front to back and checks their members' names."""
