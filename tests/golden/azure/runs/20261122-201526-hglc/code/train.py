import os
from pathlib import Path
print('hello')
Path(os.environ['TRAINYARD_OUTPUT_MODEL'], 'w').write_text('w')
