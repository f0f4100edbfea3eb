"""Transformers: training, generation, saving and loading on `neuron`, chosen by the library itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from datasets import Dataset
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast, Trainer, TrainingArguments, pipeline

NEURON = torch.device("neuron", 0)


def arguments(output: Path, **options) -> TrainingArguments:
    defaults = {
        "output_dir": str(output),
        "per_device_train_batch_size": 8,
        "max_steps": 20,
        "learning_rate": 3e-3,
        "lr_scheduler_type": "constant",
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "seed": 0,
    }
    return TrainingArguments(**(defaults | options))


def losses(trainer: Trainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def test_trainer_trains_in_bf16_on_neuron_without_being_told(
    tiny_llama: LlamaForCausalLM, tokenized_verses: Dataset, tmp_path: Path
) -> None:
    trainer = Trainer(tiny_llama, arguments(tmp_path, bf16=True), train_dataset=tokenized_verses)
    assert trainer.args.device == NEURON
    trainer.train()
    assert {parameter.device for parameter in tiny_llama.parameters()} == {NEURON}
    assert tiny_llama.lm_head.weight is tiny_llama.model.embed_tokens.weight
    history = losses(trainer)
    assert len(history) == 20
    assert sum(history[-3:]) / 3 < history[0] - 0.8


def test_trainer_gives_the_losses_of_the_cpu(
    tiny_llama: LlamaForCausalLM, tokenized_verses: Dataset, tmp_path: Path
) -> None:
    weights = {name: tensor.clone() for name, tensor in tiny_llama.state_dict().items()}
    histories = []
    for use_cpu in (False, True):
        tiny_llama.load_state_dict(weights)
        trainer = Trainer(tiny_llama, arguments(tmp_path, use_cpu=use_cpu), train_dataset=tokenized_verses)
        trainer.train()
        assert tiny_llama.device.type == ("cpu" if use_cpu else "neuron")
        histories.append(losses(trainer))
    assert histories[0] == pytest.approx(histories[1], rel=2e-4)


def test_trainer_with_checkpointing_accumulation_and_fused_adamw(
    tiny_llama: LlamaForCausalLM, tokenized_verses: Dataset, tmp_path: Path
) -> None:
    steps = {"activation_checkpointing": True, "gradient_accumulation_steps": 2, "optim": "adamw_torch_fused"}
    workers = {"dataloader_num_workers": 1, "dataloader_pin_memory": True}
    trainer = Trainer(tiny_llama, arguments(tmp_path, bf16=True, **steps, **workers), train_dataset=tokenized_verses)
    trainer.train()
    history = losses(trainer)
    assert sum(history[-3:]) / 3 < history[0] - 0.8


def test_trainer_resumes_where_it_was_saved(
    tiny_llama: LlamaForCausalLM, tokenized_verses: Dataset, tmp_path: Path
) -> None:
    weights = {name: tensor.clone() for name, tensor in tiny_llama.state_dict().items()}
    whole = Trainer(
        tiny_llama,
        arguments(tmp_path, bf16=True, max_steps=12, save_strategy="steps", save_steps=6),
        train_dataset=tokenized_verses,
    )
    whole.train()
    trained = {name: tensor.cpu().clone() for name, tensor in tiny_llama.state_dict().items()}

    tiny_llama.load_state_dict(weights)
    resumed = Trainer(tiny_llama, arguments(tmp_path, bf16=True, max_steps=12), train_dataset=tokenized_verses)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
    assert losses(resumed)[-6:] == pytest.approx(losses(whole)[-6:], rel=1e-5)
    for name, tensor in tiny_llama.state_dict().items():
        torch.testing.assert_close(tensor.cpu(), trained[name])


def test_evaluate_gives_the_loss_of_the_cpu(
    tiny_llama: LlamaForCausalLM, tokenized_verses: Dataset, tmp_path: Path
) -> None:
    found = []
    for use_cpu in (False, True):
        trainer = Trainer(tiny_llama, arguments(tmp_path, use_cpu=use_cpu), eval_dataset=tokenized_verses)
        found.append(trainer.evaluate()["eval_loss"])
    assert found[0] == pytest.approx(found[1], rel=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"do_sample": False}, id="greedy"),
        pytest.param({"do_sample": False, "num_beams": 3}, id="beams"),
        pytest.param(
            {"do_sample": False, "cache_implementation": "static", "disable_compile": True}, id="static-cache"
        ),
    ],
)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_generates_the_tokens_of_the_cpu(
    tiny_llama: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, attention: str, options: dict
) -> None:
    tokenizer.padding_side = "left"
    prompts = tokenizer(["The LORD is my", "Blessed"], padding=True, return_tensors="pt")
    tiny_llama.eval().set_attn_implementation(attention)
    expected = tiny_llama.generate(**prompts, max_new_tokens=24, **options)
    tiny_llama.to("neuron")
    found = tiny_llama.generate(**prompts.to("neuron"), max_new_tokens=24, **options)
    assert found.device == NEURON
    assert found.tolist() == expected.tolist()


def test_trained_model_is_saved_and_loaded(
    tiny_llama: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, tokenized_verses: Dataset, tmp_path: Path
) -> None:
    trainer = Trainer(tiny_llama, arguments(tmp_path), train_dataset=tokenized_verses, processing_class=tokenizer)
    trainer.train()
    trainer.save_model(str(tmp_path / "saved"))
    prompt = tokenizer("The LORD is my", return_tensors="pt")
    expected = tiny_llama.generate(**prompt.to("neuron"), max_new_tokens=24, do_sample=False).tolist()
    for device_map in (None, "neuron", {"": 0}):
        loaded = LlamaForCausalLM.from_pretrained(tmp_path / "saved", device_map=device_map)
        assert loaded.device == (torch.device("cpu") if device_map is None else NEURON)
        assert loaded.dtype == torch.float32
        prompt = prompt.to(loaded.device)
        assert loaded.generate(**prompt, max_new_tokens=24, do_sample=False).tolist() == expected


def test_pipeline_writes_what_the_cpu_writes(tiny_llama: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    written = []
    for device in ("cpu", "neuron"):
        write = pipeline("text-generation", model=tiny_llama, tokenizer=tokenizer, device=device)
        assert write.device.type == device
        written.append(write("The LORD is my", max_new_tokens=16, do_sample=False)[0]["generated_text"])
    assert written[0] == written[1]
