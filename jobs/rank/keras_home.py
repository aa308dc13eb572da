"""Makes the folder in which Keras looks for data sets and weights, from an input named `keras`.

The input is read-only and shared by ranks; Keras writes `keras.json` into its home, unpacks archives
there and asks for one file by several names. So each rank has a home of its own, made of links.
"""

from __future__ import annotations

import os

from jobs.rank.world import World

KERAS_INPUT = "keras"


def lay_keras_home(source: str, home: str, world: World) -> bool:
    """Link what lies in the folders of `source` into `home`; False for a source without folders, or a file.

    `datasets/mnist.npz` is there as `mnist-RANK.npz`, too: scripts that download on every rank give
    each rank's file a name of its own.
    """
    import shutil

    if not os.path.isdir(source):
        return False
    shutil.rmtree(home, ignore_errors=True)
    folders = [entry.name for entry in os.scandir(source) if entry.is_dir()]
    for folder in folders:
        os.makedirs(f"{home}/{folder}", mode=0o700)
        names = os.listdir(f"{source}/{folder}")
        links = {f"{home}/{folder}/{name}": name for name in names}
        for name in names:
            stem, dot, ending = name.partition(".")
            for rank in (world.rank, world.local_rank) if dot else ():
                links.setdefault(f"{home}/{folder}/{stem}-{rank}.{ending}", name)
        for link, name in links.items():
            os.symlink(f"{source}/{folder}/{name}", link)
    return bool(folders)
