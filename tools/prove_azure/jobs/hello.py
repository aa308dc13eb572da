"""Says hello from a node."""

import os
import platform

print("hello from python", platform.python_version(), "as uid", os.getuid())
