"""Reads the first bytes of a streamed shard with the token of the node's identity."""

import json
import os
import urllib.request
from pathlib import Path

source = json.loads(Path(os.environ["TRAINYARD_STREAMED_PICTURES"]).read_text(encoding="utf-8"))
shard = min(source["md5"])
request = urllib.request.Request(
    f"{source['endpoint'].rstrip('/')}/{shard}",
    headers={
        "Authorization": "Bearer " + Path(source["token_file"]).read_text(encoding="utf-8").strip(),
        "x-ms-version": "2023-11-03",
        "Range": "bytes=0-511",
    },
)
with urllib.request.urlopen(request) as answer:
    print("streamed", len(answer.read()), "bytes, status", answer.status)
