"""The options of every program: what makes no sense ends it with exit code 2 and one line."""

from __future__ import annotations

import pytest

from trainer.common.options import parse_options
from trainer.common.training_options import TrainingOptions


def test_no_flag_gives_a_training_that_keeps_three_checkpoints():
    options = parse_options(TrainingOptions, [])
    assert (options.keep_last, options.keep_every, options.checkpoint_every) == (3, None, None)
    assert (options.on_checkpoint_error, options.scheduled_events) == ("continue", None)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--keep-last", "0"], "--keep-last must be above 0, not 0"),
        (["--checkpoint-every", "-5"], "--checkpoint-every must be above 0, not -5"),
        (["--scheduled-events", "yes"], "--scheduled-events is `azure` or a URL of http, not yes"),
        (["--scheduled-events", "file:///etc/passwd"], "is `azure` or a URL of http"),
        (["--on-checkpoint-error", "ignore"], "invalid choice: 'ignore'"),
    ],
)
def test_what_makes_no_sense_is_refused(argv, message, capsys):
    with pytest.raises(SystemExit) as ended:
        parse_options(TrainingOptions, argv)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("url", ["azure", "http://127.0.0.1:8000/events"])
def test_scheduled_events_may_be_azures_or_a_stand_in(url):
    options = parse_options(TrainingOptions, ["--scheduled-events", url])
    assert options.scheduled_events == url
