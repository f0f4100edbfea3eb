"""TRL's trainers on `neuron`, and PEFT's adapters, chosen by the libraries themselves."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

NEURON = torch.device("neuron", 0)


def sft_config(output: Path, **options) -> SFTConfig:
    defaults = {
        "output_dir": str(output),
        "per_device_train_batch_size": 8,
        "max_steps": 16,
        "learning_rate": 3e-3,
        "lr_scheduler_type": "constant",
        "logging_steps": 1,
        "save_strategy": "no",
        "max_length": 64,
        "report_to": "none",
        "disable_tqdm": True,
        "seed": 0,
    }
    return SFTConfig(**(defaults | options))


def losses(trainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.fixture(scope="module")
def text(verses: list[str]) -> Dataset:
    return Dataset.from_dict({"text": verses})


def test_sft_trains_in_bf16_on_neuron_without_being_told(
    tiny_llama: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, text: Dataset, tmp_path: Path
) -> None:
    trainer = SFTTrainer(tiny_llama, sft_config(tmp_path, bf16=True), train_dataset=text, processing_class=tokenizer)
    assert trainer.args.device == NEURON
    trainer.train()
    assert {parameter.device for parameter in tiny_llama.parameters()} == {NEURON}
    history = losses(trainer)
    assert sum(history[-3:]) / 3 < history[0] - 0.8


def test_sft_resumes_where_it_was_saved(
    tiny_llama: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, text: Dataset, tmp_path: Path
) -> None:
    weights = {name: tensor.clone() for name, tensor in tiny_llama.state_dict().items()}
    saving = {"max_steps": 8, "save_strategy": "steps", "save_steps": 4}
    whole = SFTTrainer(
        tiny_llama, sft_config(tmp_path, bf16=True, **saving), train_dataset=text, processing_class=tokenizer
    )
    whole.train()
    tiny_llama.load_state_dict(weights)
    resumed = SFTTrainer(
        tiny_llama, sft_config(tmp_path, bf16=True, max_steps=8), train_dataset=text, processing_class=tokenizer
    )
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert losses(resumed)[-4:] == pytest.approx(losses(whole)[-4:], rel=1e-4)


def test_sft_with_lora_packing_and_activation_offloading(
    tiny_llama: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, text: Dataset, tmp_path: Path
) -> None:
    trainer = SFTTrainer(
        tiny_llama,
        sft_config(tmp_path, bf16=True, packing=True, activation_offloading=True, learning_rate=2e-2),
        train_dataset=text,
        processing_class=tokenizer,
        peft_config=LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    history = losses(trainer)
    assert sum(history[-3:]) / 3 < history[0] - 0.05


def test_dpo_trains(
    tiny_llama: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, verses: list[str], tmp_path: Path
) -> None:
    preferences = Dataset.from_dict(
        {
            "prompt": [verse[:20] for verse in verses[:32]],
            "chosen": [verse[20:60] for verse in verses[:32]],
            "rejected": [verse[20:60][::-1] for verse in verses[:32]],
        }
    )
    config = DPOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=8,
        max_steps=8,
        learning_rate=1e-3,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    reference = copy.deepcopy(tiny_llama)
    trainer = DPOTrainer(tiny_llama, reference, config, train_dataset=preferences, processing_class=tokenizer)
    assert trainer.args.device == NEURON
    trainer.train()
    history = losses(trainer)
    assert history[0] == pytest.approx(0.6931, abs=0.02)
    assert history[-1] < 0.6


def test_lora_adapter_is_saved_loaded_and_merged(
    tiny_llama: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    weights = {name: tensor.clone() for name, tensor in tiny_llama.state_dict().items()}
    ids = tokenizer("The LORD is my shepherd", return_tensors="pt").input_ids.to("neuron")
    config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    model = get_peft_model(tiny_llama.to("neuron"), config).eval()
    with torch.no_grad():
        expected = model(ids).logits
    model.save_pretrained(tmp_path)

    base = LlamaForCausalLM(tiny_llama.config)
    base.load_state_dict(weights)
    loaded = PeftModel.from_pretrained(base.to("neuron"), tmp_path).eval()
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, expected)
        merged = loaded.merge_and_unload()
        torch.testing.assert_close(merged(ids).logits, expected, rtol=1e-4, atol=1e-5)
