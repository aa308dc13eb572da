"""Durations, sizes and times as people, Azure and our own files write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from jobs.host.units import (
    RATE_UNITS,
    SIZE_UNITS,
    iso_duration,
    now,
    now_in_seconds,
    parse_bytes,
    parse_duration,
    parse_iso_duration,
    utc_text,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1800), ("1.5h", 5400), ("2d", 172800), ("0s", 0), ("10", None)]
    + [(text, None) for text in ("", "s", "5 m", "-1s", "1.s", "\u00b2s", "1w", "9" * 12 + "s")],
)
def test_durations_are_seconds(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "PT1S"),
        (59.01, "PT1M"),
        (3600, "PT1H"),
        (86400, "P1D"),
        (90061, "P1DT1H1M1S"),
    ],
)
def test_a_duration_is_iso_8601_rounded_up(seconds, text):
    assert iso_duration(seconds) == text
    assert parse_iso_duration(text) == -(-seconds // 1)


@pytest.mark.parametrize(("text", "seconds"), [("PT1.9S", 1), ("P", 0), ("2M", None), ("", None)])
def test_a_duration_of_azures_is_whole_seconds(text, seconds):
    assert parse_iso_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "rate", "size"),
    [
        ("4096", 4096, 4096),
        ("20M", 20_000_000, None),
        ("20MB", None, 20_000_000),
        ("1.5 kib", None, 1536),
        *((text, None, None) for text in ("", "0", "-1k", "nan", "1e999", "M", "5 iB", "fast")),
    ],
)
def test_bytes_are_read_in_the_units_that_are_asked_for(text, rate, size):
    assert (parse_bytes(text, RATE_UNITS), parse_bytes(text, SIZE_UNITS)) == (rate, size)


def test_times_are_written_in_utc():
    when = datetime.fromisoformat("2026-01-02T03:04:05.000006+02:00")
    assert utc_text(when) == "2026-01-02T01:04:05.000006Z"
    for text in (now(), now_in_seconds()):
        assert abs((datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds()) < 60
