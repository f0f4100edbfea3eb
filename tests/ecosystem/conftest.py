"""Models, tokenizer and data that need no download: a byte-level BPE trained on the repository's text, tiny configs."""

from __future__ import annotations

import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEXT = Path(__file__).parents[2] / "examples" / "text" / "king_james_poetry.txt"


@pytest.fixture(scope="session")
def verses() -> list[str]:
    """240 verses of 60 characters and more."""
    lines = TEXT.read_text(encoding="ascii").splitlines()
    return [line for line in lines if len(line) >= 60][:240]


@pytest.fixture(scope="session")
def tokenizer(verses: list[str]) -> PreTrainedTokenizerFast:
    bpe = Tokenizer(BPE())
    bpe.pre_tokenizer = ByteLevel(add_prefix_space=False)
    bpe.decoder = ByteLevelDecoder()
    special = ["<pad>", "<s>", "</s>"]
    alphabet = ByteLevel.alphabet()
    bpe.train_from_iterator(verses, BpeTrainer(vocab_size=512, special_tokens=special, initial_alphabet=alphabet))
    return PreTrainedTokenizerFast(tokenizer_object=bpe, pad_token="<pad>", bos_token="<s>", eos_token="</s>")


@pytest.fixture
def tiny_llama(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """On the CPU in fp32, always with the same weights."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config)


@pytest.fixture(scope="session")
def tokenized_verses(verses: list[str], tokenizer: PreTrainedTokenizerFast) -> Dataset:
    """`input_ids`, `attention_mask` and `labels` of 64 tokens each; padding is -100 in the labels."""
    encoded = tokenizer(verses, padding="max_length", truncation=True, max_length=64, return_tensors="pt")
    labels = encoded.input_ids.masked_fill(encoded.attention_mask == 0, -100)
    return Dataset.from_dict(
        {
            "input_ids": encoded.input_ids.tolist(),
            "attention_mask": encoded.attention_mask.tolist(),
            "labels": labels.tolist(),
        }
    )
