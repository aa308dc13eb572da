"""Imports jobs and clusters that were written for other tools: `launch import`.

documents.py   files and folders -> documents of known kinds (kinds.py, `kind_of`, task_kinds.py)
readings.py    documents and the command lines of scripts -> what is read, in which order
leaves.py      the leaves of a document; each is told of once: converted, kept by a variable, or refused
draft.py       what readers fill: `Project` with its `Draft`s (job files to be) and `DraftCluster`s
batchai_*.py, project_json.py   one reader a format: (Leaves, ..., Project) -> drafts
shell_script.py, batchai_options.py, batchai_commands.py   command lines -> trees as of JSON (`Merged`)
task_*.py      task files of other tools -> drafts, which task_draft.py fills for all of them
secrecy.py     secrets by key, place and shape; `Vault` masks them in everything that is written
job_yaml.py, readme.py   drafts -> texts; importing.py runs all of it, and writes files at the end

A new format: a row of `Kind`, its recognition in documents.py or task_kinds.py, and a reader that is called
in `importing._read_all`. A reader takes values from `Leaves.top` (`Place.section`, `take_text`, `list`), tells of
each leaf (`Place.converted`, `kept`, `refused`; whatever it leaves is refused as unknown), and appends
`Draft`s to the project. A command line becomes `Draft.text`, which bash runs in each rank, through
`Draft.without_secrets` and `shell_text.literal`. What a command line, or a part of another file,
fills is a tree of its own: `leaves.Merged` tells of each leaf in it at the place that the leaf came from.
"""
