"""Makes the folder in which Keras looks for data sets and weights, from an input named `keras`.

The input is read-only and shared by ranks; Keras writes `keras.json` into its home, unpacks archives
there and asks for one file by several names. So each rank has a home of its own, made of links.
"""

from __future__ import annotations

import os

from jobs.rank.world import World

KERAS_INPUT = "keras"


def lay_keras_home(source: str, home: str, world: World) -> bool:
    """Link what lies in the folders of `source` into `home`; False for a source without folders.

    `datasets/mnist.npz` is there as `mnist-RANK.npz`, too: scripts that download on every rank give
    each rank's file a name of its own.
    """
    import shutil

    shutil.rmtree(home, ignore_errors=True)
    folders = [entry.name for entry in os.scandir(source) if entry.is_dir()]
    for folder in folders:
        os.makedirs(f"{home}/{folder}", mode=0o700)
        for name in os.listdir(f"{source}/{folder}"):
            stem, dot, ending = name.partition(".")
            ranks = (f"-{world.rank}", f"-{world.local_rank}") if stem and dot else ()
            for suffix in dict.fromkeys(("", *ranks)):
                target = f"{home}/{folder}/{stem}{suffix}{dot}{ending}"
                if not os.path.lexists(target):
                    os.symlink(f"{source}/{folder}/{name}", target)
    return bool(folders)
