"""Models that only the benchmarks use: a ResNet-18, an encoder of BERT's base size and an LSTM that labels tokens."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ResNet18(nn.Module):
    """The network of He et al. (2015) for images of 64 pixels: a 3x3 stem, no first pooling."""

    def __init__(self, classes: int = 100) -> None:
        super().__init__()
        widths = (64, 64, 128, 256, 512)
        self.stem = nn.Sequential(convolution(3, 64, 3), nn.ReLU())
        self.stages = nn.Sequential(
            *(
                nn.Sequential(ResidualBlock(before, width, 1 if width == 64 else 2), ResidualBlock(width, width, 1))
                for before, width in zip(widths, widths[1:])
            )
        )
        self.head = nn.Linear(512, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits: float (batch, 3, height, width) -> (batch, classes)."""
        return self.head(self.stages(self.stem(images)).mean((2, 3)))


class ResidualBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = convolution(inputs, outputs, 3, stride)
        self.second = convolution(outputs, outputs, 3)
        self.shortcut = nn.Identity() if inputs == outputs else convolution(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False), nn.BatchNorm2d(outputs)
    )


class Encoder(nn.Module):
    """An encoder of the size of BERT-base (Devlin et al., 2018): 12 layers of width 768 with 12 heads."""

    def __init__(self, vocab_size: int = 30522, width: int = 768, layers: int = 12, longest: int = 512) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, width)
        self.positions = nn.Embedding(longest, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(EncoderLayer(width, heads=width // 64) for _ in range(layers))

    def forward(self, ids: Tensor) -> Tensor:
        """Hidden states: int64 (batch, time) -> (batch, time, width)."""
        x = self.norm(self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device)))
        for layer in self.layers:
            x = layer(x)
        return x


class EncoderLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.projection = (nn.Linear(width, width) for _ in range(4))
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = self.attention_norm(x + self.projection(mixed))
        return self.mlp_norm(x + self.mlp(x))


class Tagger(nn.Module):
    """A bidirectional LSTM of two layers that gives each token one of `tags`."""

    def __init__(self, vocab_size: int = 10000, width: int = 256, tags: int = 32) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * width, tags)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits: int64 (batch, time) -> (batch, time, tags)."""
        return self.head(self.lstm(self.tokens(ids))[0])


# Of a Tagger's forward pass for 8x64 tokens: gates of inputs (width 256, then 512) and of states in two directions.
LSTM_OPERATIONS = 8 * 64 * 2.0 * (2 * 1024 * (256 + 256) + 2 * 1024 * (512 + 256))
