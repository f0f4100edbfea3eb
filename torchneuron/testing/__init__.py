"""Test what runs on `neuron` against PyTorch's own databases: see `torchneuron.testing.conformance`."""
