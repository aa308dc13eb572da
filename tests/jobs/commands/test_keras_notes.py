"""A script that needs the other TensorFlow image is told so before any rank starts."""

import pytest

JOB = "name: old\nimage: {image}\nlauncher: horovod\nscript: train.py\n"
OLD = "import tensorflow as tf\nmodel.compile(opt, experimental_run_tf_function=False)\n"
NOTE = (
    "train.py uses names of Keras 2 that `tensorflow` lacks "
    "(line 2: experimental_run_tf_function); hint: image: tensorflow-keras2"
)


@pytest.mark.parametrize(
    ("image", "source", "notes"),
    [
        ("tensorflow", OLD, [NOTE]),
        ("tensorflow-keras2", OLD, []),
        ("pytorch", OLD, []),
        ("tensorflow", "import keras\n", []),
    ],
)
def test_the_plan_names_the_image_that_the_script_needs(launching, image, source, notes):
    (launching.folder / "train.py").write_text(source)
    job = launching.write_job(JOB.format(image=image))
    typed = launching.type("plan", job, "--json")
    assert [note for note in typed.json()["notes"] if "Keras" in note] == notes
    if notes:
        assert f"note      {NOTE}\n" in launching.type("plan", job).out


@pytest.mark.parametrize(
    "program", ["script: train.py", "command: [python3, train.py, --epochs, '1']"]
)
def test_what_the_script_imports_beside_it_is_read_too(launching, program):
    (launching.folder / "train.py").write_text("import net\n")
    (launching.folder / "net.py").write_text(OLD)
    job = launching.write_job(f"name: old\nimage: tensorflow\n{program}\ncode: .\n")
    notes = launching.type("plan", job, "--json").json()["notes"]
    assert [note for note in notes if "Keras" in note] == [
        NOTE.replace("(line 2", "(net.py, line 2")
    ]
