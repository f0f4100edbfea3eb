"""Models of Hugging Face libraries, trained for a step and run in inference: on `neuron` the values of the CPU, and no
operator waits for its stream but those that give the host a value or whose result's size depends on values.
"""

from __future__ import annotations

from collections.abc import Callable

import diffusers
import pytest
import torch
import transformers
from torch import Tensor, nn

# What a model asks of the device that only values can answer.
RETURN_TO_HOST = {
    "aten::_local_scalar_dense",  # .item(), a branch on a tensor, such as whether all sequences have ended
    "aten::equal",
    "aten::nonzero",  # also an index that is a mask
    "aten::masked_select",
    "aten::_unique2",
    "aten::bincount",
}

Results = list[Tensor]


def numbers(*sizes: int, seed: int = 0) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def integers(high: int, *sizes: int, seed: int = 0) -> Tensor:
    return torch.randint(3, high, sizes, generator=torch.Generator().manual_seed(seed))


def padding(rows: int, columns: int) -> Tensor:
    mask = torch.ones(rows, columns, dtype=torch.long)
    mask[0, : columns // 3] = 0
    return mask


NO_DROPOUT = {"attention_dropout": 0.0, "hidden_dropout": 0.0, "activation_dropout": 0.0}
SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}


def llama() -> nn.Module:
    config = transformers.LlamaConfig(
        vocab_size=64, num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2, **SMALL
    )
    return transformers.LlamaForCausalLM(config)


def run_llama(model: nn.Module, device: str) -> tuple[Tensor, Callable[[], Results]]:
    tokens, mask = integers(64, 3, 9).to(device), padding(3, 9).to(device)
    loss = model(tokens, attention_mask=mask, labels=tokens.masked_fill(mask == 0, -100)).loss
    return loss, lambda: [
        model.generate(tokens, attention_mask=mask, max_new_tokens=8, do_sample=False),
        model.generate(tokens, attention_mask=mask, max_new_tokens=6, do_sample=False, num_beams=2),
        model.generate(tokens, attention_mask=mask, max_new_tokens=6, do_sample=True, top_k=10, top_p=0.9),
    ]


def mixtral() -> nn.Module:
    config = transformers.MixtralConfig(
        vocab_size=64, num_key_value_heads=2, num_local_experts=4, output_router_logits=True, **SMALL
    )
    return transformers.MixtralForCausalLM(config)


def run_mixtral(model: nn.Module, device: str) -> tuple[Tensor, Callable[[], Results]]:
    tokens = integers(64, 2, 9).to(device)
    return model(tokens, labels=tokens).loss, lambda: [model(tokens).logits]


def mamba() -> nn.Module:
    return transformers.MambaForCausalLM(
        transformers.MambaConfig(vocab_size=64, hidden_size=16, state_size=4, num_hidden_layers=2, pad_token_id=0)
    )


def run_mamba(model: nn.Module, device: str) -> tuple[Tensor, Callable[[], Results]]:
    tokens = integers(64, 2, 9).to(device)
    return model(tokens, labels=tokens).loss, lambda: [model.generate(tokens, max_new_tokens=5, do_sample=False)]


def bert() -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, max_position_embeddings=32, **SMALL
    )
    return transformers.BertForMaskedLM(config)


def run_bert(model: nn.Module, device: str) -> tuple[Tensor, Callable[[], Results]]:
    tokens, mask = integers(64, 3, 12).to(device), padding(3, 12).to(device)
    loss = model(tokens, attention_mask=mask, labels=tokens.where(tokens % 3 == 0, -100)).loss
    return loss, lambda: [model(tokens, attention_mask=mask).logits]


def t5() -> nn.Module:
    config = transformers.T5Config(
        vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0,
        feed_forward_proj="gated-gelu", decoder_start_token_id=0, pad_token_id=0, eos_token_id=1,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config)


def run_t5(model: nn.Module, device: str) -> tuple[Tensor, Callable[[], Results]]:
    tokens, mask = integers(64, 3, 40).to(device), padding(3, 40).to(device)
    loss = model(tokens, attention_mask=mask, labels=integers(64, 3, 7).to(device)).loss
    return loss, lambda: [model.generate(tokens, attention_mask=mask, max_new_tokens=6, do_sample=False)]


def vit() -> nn.Module:
    config = transformers.ViTConfig(image_size=16, patch_size=4, num_labels=5, **SMALL)
    return transformers.ViTForImageClassification(config)


def run_vit(model: nn.Module, device: str) -> tuple[Tensor, Callable[[], Results]]:
    images, labels = numbers(2, 3, 16, 16).to(device), torch.tensor([1, 4], device=device)
    larger = numbers(2, 3, 24, 24).to(device)
    loss = model(images, labels=labels).loss
    return loss, lambda: [model(images).logits, model(larger, interpolate_pos_encoding=True).logits]


def swin() -> nn.Module:
    config = transformers.SwinConfig(
        image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, num_labels=5,
        drop_path_rate=0.0,
    )  # fmt: skip
    return transformers.SwinForImageClassification(config)


def run_swin(model: nn.Module, device: str) -> tuple[Tensor, Callable[[], Results]]:
    images, labels = numbers(2, 3, 32, 32).to(device), torch.tensor([1, 4], device=device)
    return model(images, labels=labels).loss, lambda: [model(images).logits]


def clip() -> nn.Module:
    text = {"vocab_size": 64, "max_position_embeddings": 16, "bos_token_id": 1, "eos_token_id": 2, **SMALL}
    vision = {"image_size": 16, "patch_size": 8, **SMALL}
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16)
    return transformers.CLIPModel(config)


def run_clip(model: nn.Module, device: str) -> tuple[Tensor, Callable[[], Results]]:
    tokens, images = integers(64, 3, 8).to(device), numbers(3, 3, 16, 16).to(device)
    tokens[:, -1] = 2
    found = lambda: model(input_ids=tokens, pixel_values=images, return_loss=True)  # noqa: E731
    return found().loss, lambda: [found().logits_per_image]


def wav2vec2() -> nn.Module:
    config = transformers.Wav2Vec2Config(
        vocab_size=16, conv_dim=(16, 16), conv_stride=(5, 4), conv_kernel=(10, 4), num_feat_extract_layers=2,
        num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4, feat_proj_dropout=0.0, final_dropout=0.0,
        layerdrop=0.0, mask_time_prob=0.0, pad_token_id=0, **SMALL, **NO_DROPOUT,
    )  # fmt: skip
    return transformers.Wav2Vec2ForCTC(config)


def run_wav2vec2(model: nn.Module, device: str) -> tuple[Tensor, Callable[[], Results]]:
    waves, mask = numbers(2, 800).to(device), torch.ones(2, 800, dtype=torch.long)
    mask[1, 600:] = 0
    labels = integers(16, 2, 6).to(device)
    loss = model(waves, attention_mask=mask.to(device), labels=labels).loss
    return loss, lambda: [model(waves, attention_mask=mask.to(device)).logits]


def whisper() -> nn.Module:
    config = transformers.WhisperConfig(
        vocab_size=64, num_mel_bins=8, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=50,
        max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        suppress_tokens=None, begin_suppress_tokens=None, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0,
    )  # fmt: skip
    return transformers.WhisperForConditionalGeneration(config)


def run_whisper(model: nn.Module, device: str) -> tuple[Tensor, Callable[[], Results]]:
    extract = transformers.WhisperFeatureExtractor(feature_size=8, hop_length=160, chunk_length=1, n_fft=400)
    waves = list(numbers(2, 16000).numpy())
    features = extract(waves, sampling_rate=16000, return_tensors="pt", device=device).input_features.to(device)
    loss = model(input_features=features, labels=integers(64, 2, 7).to(device)).loss
    return loss, lambda: [features, model.generate(features, max_new_tokens=5, do_sample=False)]


def unet() -> nn.Module:
    return diffusers.UNet2DModel(
        sample_size=16, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(16, 32),
        norm_num_groups=8, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=8,
    )  # fmt: skip


def run_unet(model: nn.Module, device: str) -> tuple[Tensor, Callable[[], Results]]:
    images, noise = numbers(2, 3, 16, 16).to(device), numbers(2, 3, 16, 16, seed=1).to(device)
    scheduler = diffusers.DDPMScheduler(num_train_timesteps=50)
    steps = torch.tensor([7, 31], device=device)
    loss = nn.functional.mse_loss(model(scheduler.add_noise(images, noise, steps), steps).sample, noise)

    def draw() -> Results:
        drawn = []
        for kind in (diffusers.DDPMScheduler, diffusers.EulerDiscreteScheduler, diffusers.DPMSolverMultistepScheduler):
            scheduler = kind(num_train_timesteps=50)
            scheduler.set_timesteps(4, device=device)
            x = noise * scheduler.init_noise_sigma
            for step in scheduler.timesteps:
                predicted = model(scheduler.scale_model_input(x, step), step).sample
                x = scheduler.step(predicted, step, x).prev_sample
            drawn.append(x)
        return drawn

    return loss, draw


MODELS = {
    "llama": (llama, run_llama),
    "mixtral": (mixtral, run_mixtral),
    "mamba": (mamba, run_mamba),
    "bert": (bert, run_bert),
    "t5": (t5, run_t5),
    "vit": (vit, run_vit),
    "swin": (swin, run_swin),
    "clip": (clip, run_clip),
    "wav2vec2": (wav2vec2, run_wav2vec2),
    "whisper": (whisper, run_whisper),
    "unet": (unet, run_unet),
}


def trained_and_run(name: str, device: str) -> Results:
    """The loss of a step, the weights after it, and what inference gives."""
    make, run = MODELS[name]
    torch.manual_seed(3)
    model = make().to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, eps=1e-3)
    torch.manual_seed(4)
    loss, infer = run(model, device)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    model.eval()
    with torch.no_grad():
        results = infer()
    return [loss.detach(), *results, *(parameter.detach() for parameter in model.parameters())]


@pytest.mark.parametrize("name", MODELS)
def test_values_are_those_of_the_cpu(name: str) -> None:
    with torch.neuron.match_cpu_random():
        found = trained_and_run(name, "neuron")
    for a, e in zip(found, trained_and_run(name, "cpu"), strict=True):
        assert a.device.type == "neuron"
        torch.testing.assert_close(a.cpu(), e, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_only_what_returns_to_the_host_waits(name: str) -> None:
    torch.neuron.clear_op_tracking()
    trained_and_run(name, "neuron")
    assert torch.neuron.get_fallback_ops().keys() <= RETURN_TO_HOST
