"""Says the digest of a secret, never the secret."""

import hashlib
import os

print("digest", hashlib.sha256(os.environ["PROVED"].encode()).hexdigest()[:16])
