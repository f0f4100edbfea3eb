"""`torch.compile` on `neuron`: Inductor's C++ kernels as launches on the device's streams."""
