"""Settings of all tests: no models and measurements of this user, and plots without a screen."""

import os
import tempfile

os.environ.setdefault("MPLBACKEND", "agg")
if "ELLECT_DATA" not in os.environ:
    os.environ["ELLECT_DATA"] = tempfile.mkdtemp(prefix="ellect-tests-")
