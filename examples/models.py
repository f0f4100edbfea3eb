"""The two models that the examples and the benchmarks train: a small GPT and a small convolutional net.

Nothing here knows which device it runs on.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class GPTConfig:
    vocab_size: int
    block_size: int = 64
    width: int = 128
    layers: int = 4
    heads: int = 4
    dropout: float = 0.0


class GPT(nn.Module):
    """A decoder-only transformer with learned positions and an output layer tied to the embedding."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab_size, config.width)
        self.positions = nn.Embedding(config.block_size, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocab_size, bias=False)
        self.head.weight = self.tokens.weight
        self.apply(self._initialise)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits of the next token: int64 (batch, time) -> (batch, time, vocab_size); time <= block_size."""
        position = torch.arange(ids.shape[1], device=ids.device)
        x = self.dropout(self.tokens(ids) + self.positions(position))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    @torch.no_grad()
    def generate(self, ids: Tensor, length: int, temperature: float = 1.0) -> Tensor:
        """`ids` (batch, time) followed by `length` sampled tokens; with temperature 0, the likeliest ones."""
        for _ in range(length):
            logits = self(ids[:, -self.config.block_size :])[:, -1]
            if temperature == 0:
                following = logits.argmax(dim=-1, keepdim=True)
            else:
                following = torch.multinomial(F.softmax(logits / temperature, dim=-1), num_samples=1)
            ids = torch.cat((ids, following), dim=1)
        return ids

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


class Block(nn.Module):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = CausalSelfAttention(config)
        self.mlp_norm = nn.LayerNorm(config.width)
        self.mlp = nn.Sequential(
            nn.Linear(config.width, 4 * config.width),
            nn.GELU(),
            nn.Linear(4 * config.width, config.width),
            nn.Dropout(config.dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class CausalSelfAttention(nn.Module):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.dropout = config.dropout
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.projection = nn.Linear(config.width, config.width)
        self.residual_dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        q, k, v = self.qkv(x).view(batch, time, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return self.residual_dropout(self.projection(y.transpose(1, 2).reshape(batch, time, width)))


class ConvNet(nn.Module):
    """Three convolutions with batch norm for images of 8x8 pixels and one channel."""

    def __init__(self, classes: int = 10, channels: int = 32, dropout: float = 0.2) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *convolution(1, channels),
            *convolution(channels, channels),
            nn.MaxPool2d(2),
            *convolution(channels, 2 * channels),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(2 * channels * 2 * 2, 128),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(128, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Logits: float (batch, 1, 8, 8) -> (batch, classes)."""
        return self.classifier(self.features(images))


def convolution(inputs: int, outputs: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
