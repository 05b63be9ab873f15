"""One torch thread: these tensors are small, and threads that wait for each other only take the cores from others."""

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def _one_torch_thread():
    torch.set_num_threads(1)
