"""Where PyTorch computes: what is asked for, and what is said where it is not there."""

import pytest

from caliope.behaviour import _devices


@pytest.mark.parametrize("wrong", ["gpu", "cudax", 0, True])
def test_what_is_no_device_is_refused(wrong, monkeypatch):
    monkeypatch.setattr(_devices, "cuda_is_there", lambda: True)
    with pytest.raises(ValueError, match="device must be 'cpu', 'cuda'"):
        _devices.choose_device(wrong)


@pytest.mark.parametrize("there", [True, False])
def test_a_gpu_is_taken_where_there_is_one_and_refused_where_there_is_none(there, monkeypatch):
    monkeypatch.setattr(_devices, "cuda_is_there", lambda: there)
    assert _devices.choose_device("cpu") == "cpu"
    assert _devices.choose_device(None) == ("cuda" if there else "cpu")
    if there:
        assert _devices.choose_device("cuda:1") == "cuda:1"
    else:
        with pytest.raises(ValueError, match="device is 'cuda:1', but PyTorch finds no GPU here"):
            _devices.choose_device("cuda:1")
