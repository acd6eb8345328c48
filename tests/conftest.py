"""What several test files share: the test data, a toy domain, a small random policy. CPU only, no network."""

import os
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
for variable in ("ALFWORLD_DATA", "WEBSHOP_DATA", "SEARCH_DATA", "SEARCH_URL"):
    os.environ.pop(variable, None)  # the tests name the data that they use
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("ADRS_TEST_DATA", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no test data at {folder} (set ADRS_TEST_DATA)")
    return folder


@pytest.fixture
def policy():
    """A policy of 40 thousand random weights over the toy domain's words."""
    from tests.toy import toy_policy

    return toy_policy()


@pytest.fixture
def domain():
    from tests.toy import Toy

    return Toy()


@pytest.fixture
def launch(policy, tmp_path, monkeypatch):
    """Runs train.py on the toy domain and returns the run's folder."""
    from tests.toy import launcher

    return launcher(tmp_path, policy, monkeypatch)
