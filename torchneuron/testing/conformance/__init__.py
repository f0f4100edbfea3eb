"""Run PyTorch's databases of operators, modules and optimisers on `neuron` and on `cpu`, and compare.

    python -m torchneuron.testing.conformance --output conformance.json

The databases are those that PyTorch tests itself with (`torch.testing._internal`, part of its wheel). Each operator is
called with every sample input of every dtype that `cpu` supports, on both devices, and the two must agree: in values,
dtypes, shapes, strides and devices of the results, in gradients, and in the type and text of what is raised. Random
numbers are compared by value (`torch.neuron.match_cpu_random`).

The unit that is counted is one check of one operator with one dtype; it passes if all its samples do. Needs
the package's extra `conformance`.
"""
