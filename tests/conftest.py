"""What all tests share: pools of atoms are built once and kept beside pytest's own cache."""

from __future__ import annotations

import os

from shared_folder import REPOSITORY

os.environ.setdefault("PREFIXBENCH_CACHE", str(REPOSITORY / ".pytest_cache" / "prefixbench"))
