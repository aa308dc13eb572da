"""Judges requests."""


def judge(token, inputs):
    return []
