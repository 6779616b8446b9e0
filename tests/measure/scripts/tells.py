"""Says where the compiler would keep what it builds."""

import os

print(os.environ["TORCHINDUCTOR_CACHE_DIR"])
