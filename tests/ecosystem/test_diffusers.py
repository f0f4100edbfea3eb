"""A tiny Stable Diffusion, made from configs, draws on `neuron` what it draws on `cpu`."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy
import pytest
import torch
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel, PreTrainedTokenizerFast

LENGTH = 32  # tokens of a prompt


@pytest.fixture(scope="module")
def pipeline_on_cpu(tokenizer: PreTrainedTokenizerFast) -> StableDiffusionPipeline:
    torch.manual_seed(0)
    unet = UNet2DConditionModel(
        block_out_channels=(32, 64),
        layers_per_block=2,
        sample_size=16,
        in_channels=4,
        out_channels=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32,
        attention_head_dim=8,
        norm_num_groups=8,
    )
    vae = AutoencoderKL(
        block_out_channels=(32, 64),
        in_channels=3,
        out_channels=3,
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
        latent_channels=4,
        norm_num_groups=8,
    )
    text_config = CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=LENGTH,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    of_prompts = copy.deepcopy(tokenizer)
    of_prompts.model_max_length = LENGTH
    pipeline = StableDiffusionPipeline(
        vae=vae.eval(),
        text_encoder=CLIPTextModel(text_config).eval(),
        tokenizer=of_prompts,
        unet=unet.eval(),
        scheduler=DDIMScheduler(clip_sample=False, set_alpha_to_one=False, steps_offset=1),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def draw(pipeline: StableDiffusionPipeline) -> numpy.ndarray:
    """One image, float (32, 32, 3) in [0, 1]."""
    images = pipeline(
        "The heavens declare the glory of God",
        num_inference_steps=6,
        guidance_scale=5.0,
        generator=torch.Generator().manual_seed(3),
        output_type="np",
    ).images
    return images[0]


@pytest.fixture(scope="module")
def expected(pipeline_on_cpu: StableDiffusionPipeline) -> numpy.ndarray:
    image = draw(pipeline_on_cpu)
    assert image.shape == (32, 32, 3)
    assert image.std() > 0.01
    return image


def on_neuron(pipeline: StableDiffusionPipeline, **to) -> StableDiffusionPipeline:
    return copy.deepcopy(pipeline).to("neuron", **to)


def test_fp32_pipeline_draws_the_image_of_the_cpu(
    pipeline_on_cpu: StableDiffusionPipeline, expected: numpy.ndarray
) -> None:
    pipeline = on_neuron(pipeline_on_cpu)
    assert pipeline.device.type == "neuron"
    numpy.testing.assert_allclose(draw(pipeline), expected, atol=1e-4)


def test_bf16_pipeline_draws_nearly_that_image(
    pipeline_on_cpu: StableDiffusionPipeline, expected: numpy.ndarray
) -> None:
    image = draw(on_neuron(pipeline_on_cpu, dtype=torch.bfloat16))
    assert numpy.abs(image - expected).mean() < 0.02


def test_saved_pipeline_is_loaded_and_offloaded(
    pipeline_on_cpu: StableDiffusionPipeline, expected: numpy.ndarray, tmp_path: Path
) -> None:
    pipeline_on_cpu.save_pretrained(tmp_path)
    for offload in ("enable_model_cpu_offload", "enable_sequential_cpu_offload"):
        pipeline = StableDiffusionPipeline.from_pretrained(tmp_path, safety_checker=None)
        pipeline.set_progress_bar_config(disable=True)
        getattr(pipeline, offload)()
        numpy.testing.assert_allclose(draw(pipeline), expected, atol=1e-4, err_msg=offload)
