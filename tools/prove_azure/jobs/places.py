"""Says on which node each rank is, as one line of JSON."""

import json
import os
import socket

place = f"{socket.gethostname()}:{os.getcwd()}"
print(json.dumps({"rank": int(os.environ["RANK"]), "place": place}))
