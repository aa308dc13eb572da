"""Says a line a second until it is ended."""

import itertools
import time

for number in itertools.count():
    print("tick", number, flush=True)
    time.sleep(1)
