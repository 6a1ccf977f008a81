"""What is too large for the tests of every day runs where somebody asks for it."""

import os

collect_ignore = [] if os.environ.get("AZURITE") else ["test_azure.py"]
