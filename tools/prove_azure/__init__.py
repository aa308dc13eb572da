"""Settles on a real subscription what a stand-in for Azure cannot know: `make prove-azure`."""
