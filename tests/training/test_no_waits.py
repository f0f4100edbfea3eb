"""Two steps of training and a run in inference of models of many kinds: on `neuron` the values of the CPU, and no
operator waits for its stream but those that give the host a value or whose result's size depends on values.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

# What a model asks of the device that only values can answer.
RETURN_TO_HOST = {
    "aten::_local_scalar_dense",  # .item(), float(), a branch on a tensor
    "aten::equal",
    "aten::nonzero",  # also an index that is a mask
    "aten::masked_select",
    "aten::_unique2",
    "aten::bincount",
    "aten::_linalg_eigh.eigenvalues",  # whether it converged
    "aten::_linalg_svd.U",
    "aten::cholesky_inverse",  # whether there is an inverse
    "aten::_nested_tensor_from_mask_left_aligned",  # a bool
    "aten::_nested_tensor_from_mask",  # the geometry of a nested tensor lies on the host
}


Results = list[Tensor]
Make = Callable[[], nn.Module]


def numbers(*sizes: int, seed: int = 0) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def integers(high: int, *sizes: int, seed: int = 0) -> Tensor:
    return torch.randint(high, sizes, generator=torch.Generator().manual_seed(seed))


class Recommender(nn.Module):
    """DLRM: bags of embeddings, and the products of all pairs of features."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(30, 8, mode=mode) for mode in ("sum", "mean", "max"))
        self.weighted = nn.EmbeddingBag(30, 8, mode="sum", include_last_offset=True)
        self.single = nn.Embedding(30, 8, padding_idx=0, max_norm=3.0)
        self.bottom = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(8 + 15, 16), nn.PReLU(), nn.Linear(16, 1))
        self.temperature = nn.Parameter(torch.ones(24))

    def forward(self, dense: Tensor, indices: Tensor, offsets: Tensor) -> Tensor:
        x = self.bottom(dense)
        features = [x, *(bag(indices, offsets) for bag in self.bags)]
        ends = torch.cat([offsets, offsets.new_full((1,), len(indices))])
        features.append(self.weighted(indices, ends, per_sample_weights=self.temperature))
        features.append(self.single(indices.view(6, 4)[:, 0]))
        stacked = torch.stack(features, 1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        rows, columns = torch.tril_indices(6, 6, offset=-1, device=x.device)
        return self.top(torch.cat([x, products[:, rows, columns]], 1)).squeeze(1)

    def loss(self, device: str) -> Tensor:
        offsets = torch.tensor([0, 4, 4, 9, 15, 20], device=device)
        scores = self(numbers(6, 5).to(device), integers(30, 24).to(device), offsets)
        return F.binary_cross_entropy_with_logits(scores, integers(2, 6).float().to(device))


class GraphNet(nn.Module):
    """Attention over the edges of a graph, sums and extremes by node and by segment."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(6, 8)
        self.score = nn.Linear(16, 1)
        self.update = nn.GRUCell(8, 8)
        self.out = nn.Linear(32, 3)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        x = F.elu(self.embed(nodes))
        source, target = edges
        for _ in range(2):
            pair = torch.cat([x.index_select(0, source), x[target]], 1)
            score = F.leaky_relu(self.score(pair)).squeeze(1)
            top = score.new_full((len(x),), -math.inf).scatter_reduce(0, target, score, "amax")
            weight = (score - top[target]).exp()
            total = torch.zeros_like(top).scatter_add(0, target, weight)
            messages = x[source] * (weight / total[target].clamp_min(1e-9)).unsqueeze(1)
            x = self.update(torch.zeros_like(x).index_add(0, target, messages), x)
        index = target.unsqueeze(1).expand(-1, 8)
        gathered = x.gather(0, source.unsqueeze(1).expand(-1, 8))
        mean = torch.zeros_like(x).scatter_reduce(0, index, gathered, "mean", include_self=False)
        degrees = torch.zeros(len(x), device=x.device).index_put((target,), x.new_ones(()), accumulate=True)
        order = target.argsort(stable=True)
        segments = torch.segment_reduce(gathered[order], "max", lengths=degrees.long(), initial=0)
        whole = torch.segment_reduce(x, "mean", lengths=torch.tensor([5, 7], device=x.device), unsafe=True)
        graphs = torch.tensor([0] * 5 + [1] * 7, device=x.device)
        return self.out(torch.cat([x, mean, segments, whole[graphs]], 1) / (1 + degrees.log1p()).unsqueeze(1))

    def loss(self, device: str) -> Tensor:
        logits = self(numbers(12, 6).to(device), integers(12, 2, 40).to(device))
        return F.cross_entropy(logits, integers(3, 12).to(device), label_smoothing=0.1)


class Block(nn.Module):
    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, 2 * channels, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(2 * channels, 2 * channels, 3, padding=2, dilation=2, groups=2, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(2 * channels), nn.BatchNorm2d(2 * channels)])
        self.skip = nn.Conv2d(channels, 2 * channels, 1, stride)
        self.gate = nn.Conv2d(2 * channels, 2 * channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[1](self.two(F.relu(self.norms[0](self.one(x)), inplace=True)))
        y = y * F.hardsigmoid(self.gate(F.adaptive_avg_pool2d(y, 1)))
        return F.hardswish(y + self.skip(x))


class Detector(nn.Module):
    """A residual net with a pyramid, a spatial transformer, and boxes chosen by score and overlap."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect")
        self.blocks = nn.ModuleList([Block(8, 2), Block(16, 2)])
        self.lateral = nn.ModuleList([nn.Conv2d(16, 8, 1), nn.Conv2d(32, 8, 1)])
        self.up = nn.ConvTranspose2d(8, 8, 2, 2)
        self.theta = nn.Linear(8, 6)
        self.head = nn.Conv2d(8, 3 + 4, 3, padding=1)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        x = F.max_pool2d(F.relu6(self.stem(images)), 3, 2, 1)
        x = F.local_response_norm(x, 3)
        fine = self.blocks[0](x)
        coarse = self.blocks[1](fine)
        top = self.lateral[1](coarse)
        merged = self.lateral[0](fine) + F.interpolate(top, scale_factor=2, mode="bilinear", align_corners=False)
        merged = merged + self.up(F.interpolate(top, size=fine.shape[-2:], mode="nearest")[:, :, ::2, ::2])
        theta = self.theta(merged.mean((2, 3))).view(-1, 2, 3) * 0.1 + torch.eye(2, 3, device=images.device)
        grid = F.affine_grid(theta, list(merged.shape), align_corners=False)
        maps = self.head(F.grid_sample(merged, grid, padding_mode="border", align_corners=False))
        return maps[:, :3].flatten(2).transpose(1, 2), maps[:, 3:].flatten(2).transpose(1, 2)

    def boxes(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The best boxes and which of them a soft suppression keeps, without asking the host."""
        classes, corners = self(images)
        scores, labels = classes.sigmoid().max(-1)
        best, chosen = scores.topk(6)
        corners = corners.gather(1, chosen.unsqueeze(-1).expand(-1, -1, 4))
        low = torch.minimum(corners[..., :2], corners[..., 2:])
        high = torch.maximum(corners[..., :2], corners[..., 2:]) + 0.1
        sides = (torch.minimum(high[:, :, None], high[:, None]) - torch.maximum(low[:, :, None], low[:, None])).clamp(0)
        overlap = sides.prod(-1)
        area = (high - low).prod(-1)
        iou = overlap / (area[:, :, None] + area[:, None] - overlap)
        keep = iou.triu(1).amax(1) < 0.5
        rank = keep.cumsum(1) * keep
        ordered = torch.where(keep, best, -1.0).sort(1, descending=True)
        return torch.cat([ordered.values, rank, labels.gather(1, chosen)], 1), iou

    def loss(self, device: str) -> Tensor:
        classes, corners = self(numbers(2, 3, 32, 32).to(device))
        wanted = F.one_hot(integers(3, 2, 64), 3).float().to(device)
        focal = F.binary_cross_entropy_with_logits(classes, wanted, reduction="none")
        focal = (focal * (1 - torch.exp(-focal)) ** 2).mean()
        return focal + F.smooth_l1_loss(corners, numbers(2, 64, 4, seed=1).to(device), beta=0.3)


class Speech(nn.Module):
    """Log-mel features of waves, convolutions with normed weights, a bidirectional LSTM and CTC."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(64))
        self.register_buffer("mel", numbers(33, 12).abs() / 8)
        self.conv = parametrizations.weight_norm(nn.Conv1d(12, 16, 5, padding=2))
        self.positions = parametrizations.weight_norm(nn.Conv1d(16, 16, 4, padding=2, groups=4), dim=2)
        self.lstm = nn.LSTM(16, 12, num_layers=2, bidirectional=True, batch_first=True, dropout=0.1)
        self.out = nn.Linear(24, 9)

    def spectrum(self, waves: Tensor) -> Tensor:
        return torch.stft(waves, 64, hop_length=16, window=self.window, center=True, return_complex=True)

    def forward(self, waves: Tensor) -> Tensor:
        power = self.spectrum(waves).abs().square()
        x = torch.clamp(power.transpose(1, 2) @ self.mel, min=1e-6).log10()
        x = torch.maximum(x, x.amax((1, 2), keepdim=True) - 8.0)
        x = (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5)
        x = F.gelu(self.conv(x.transpose(1, 2)))
        x = x + F.glu(self.positions(x)[..., :-1].repeat(1, 2, 1), dim=1)
        return self.out(self.lstm(x.transpose(1, 2))[0]).log_softmax(-1)

    def griffin_lim(self, waves: Tensor) -> Tensor:
        """Two rounds of the search for the phase of a spectrum."""
        magnitude = self.spectrum(waves).abs()
        angles = torch.zeros_like(magnitude)
        for _ in range(2):
            wave = torch.istft(torch.polar(magnitude, angles), 64, 16, window=self.window, length=waves.shape[1])
            angles = self.spectrum(wave).angle()
        return torch.cat([wave, torch.view_as_real(self.spectrum(wave)).flatten(1)], 1)

    def loss(self, device: str) -> Tensor:
        log_probs = self(numbers(3, 400).to(device)).transpose(0, 1)
        targets = integers(8, 3, 6).to(device) + 1
        return F.ctc_loss(log_probs, targets, torch.tensor([26, 22, 24]), torch.tensor([6, 4, 5]), zero_infinity=True)


class Tagger(nn.Module):
    """Packed sequences through a GRU and an LSTM with a projection, with teacher forcing by cells."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 12)
        self.gru = nn.GRU(12, 10, num_layers=2, batch_first=True, bidirectional=True)
        self.lstm = nn.LSTM(20, 14, proj_size=6, batch_first=True)
        self.rnn = nn.RNN(6, 8, nonlinearity="relu", batch_first=True)
        self.cell = nn.LSTMCell(8, 8)
        self.out = nn.Linear(8, 5)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.embed(tokens), lengths, batch_first=True, enforce_sorted=False)
        x, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True)
        x = self.rnn(self.lstm(x)[0])[0]
        hidden = cell = torch.zeros_like(x[:, 0])
        states = []
        for step in x.unbind(1):
            hidden, cell = self.cell(step, (hidden, cell))
            states.append(hidden)
        return self.out(torch.stack(states, 1))

    def loss(self, device: str) -> Tensor:
        lengths = torch.tensor([7, 9, 4, 6])
        logits = self(integers(40, 4, 9).to(device), lengths)
        wanted = integers(5, 4, 9).to(device)
        outside = torch.arange(9, device=device) >= lengths.to(device)[:, None]
        return F.cross_entropy(logits.flatten(0, 1), wanted.masked_fill(outside, -100).flatten(), ignore_index=-100)


class Translator(nn.Module):
    """nn.Transformer with masks; the encoder's fused layers in inference; sampling by top-k and top-p."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.core = nn.Transformer(16, 2, 2, 2, 32, dropout=0.1, batch_first=True)
        self.out = nn.Linear(16, 20)

    def forward(self, source: Tensor, target: Tensor, padding: Tensor | None = None) -> Tensor:
        mask = self.core.generate_square_subsequent_mask(target.shape[1], device=target.device)
        x = self.core(
            self.embed(source),
            self.embed(target),
            tgt_mask=mask,
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return self.out(x)

    def encoded(self, source: Tensor) -> Tensor:
        x = self.core.encoder(self.embed(source))
        blocked = torch.zeros(7, 7, dtype=torch.bool, device=source.device)
        blocked[:, 5:] = True
        y = self.core.encoder(self.embed(source), mask=blocked)
        z, _ = self.core.encoder.layers[0].self_attn(x, y, x, need_weights=True)
        w, _ = self.core.encoder.layers[0].self_attn(x, x, x, attn_mask=blocked)
        return torch.cat([x, y, z, w], 1)

    def sampled(self, source: Tensor) -> Tensor:
        tokens = source[:, :1]
        for _ in range(4):
            scores = self(source, tokens)[:, -1] / 0.7
            scores = scores.masked_fill(scores < scores.topk(10).values[:, -1:], -math.inf)
            ordered, order = scores.sort(descending=True)
            mass = ordered.softmax(-1).cumsum(-1)
            kept = ordered.masked_fill(mass - ordered.softmax(-1) > 0.9, -math.inf)
            scores = torch.full_like(scores, -math.inf).scatter(1, order, kept)
            draw = torch.searchsorted(scores.softmax(-1).cumsum(-1), torch.full_like(scores[:, :1], 0.4))
            tokens = torch.cat([tokens, draw, scores.softmax(-1).multinomial(1)], 1)
        return tokens

    def loss(self, device: str) -> Tensor:
        source, target = integers(20, 3, 7).to(device), integers(20, 3, 6, seed=1).to(device)
        padding = torch.zeros(3, 7, dtype=torch.bool)
        padding[1, 5:] = True
        logits = self(source, target[:, :-1], padding.to(device))
        return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=3)


class Denoiser(nn.Module):
    """A small U-net with attention and embedded time steps, trained to predict noise and run backwards in time."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 16))
        self.down = nn.ModuleList([nn.Conv2d(2, 16, 3, padding=1), nn.Conv2d(16, 16, 3, 2, 1)])
        self.norms = nn.ModuleList([nn.GroupNorm(4, 16), nn.GroupNorm(8, 16)])
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.up = nn.Conv2d(32, 2, 3, padding=1, padding_mode="circular")
        self.register_buffer("alphas", torch.cumprod(1 - torch.linspace(1e-3, 0.2, 20), 0))

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        frequencies = torch.exp(-math.log(100.0) * torch.arange(8, device=x.device) / 8)
        angles = steps[:, None].float() * frequencies
        embedded = self.time(torch.cat([angles.sin(), angles.cos()], -1))
        wide = F.silu(self.norms[0](self.down[0](x))) + embedded[:, :, None, None]
        deep = self.norms[1](self.down[1](wide))
        flat = deep.flatten(2).transpose(1, 2)
        flat = flat + self.attention(flat, flat, flat, need_weights=False)[0]
        deep = F.interpolate(flat.transpose(1, 2).reshape_as(deep), scale_factor=2.0, mode="nearest")
        return self.up(torch.cat([wide, deep], 1))

    def draw(self, x: Tensor) -> Tensor:
        for step in range(19, 0, -4):
            steps = torch.full((len(x),), step, device=x.device)
            now, before = self.alphas[step], self.alphas[step - 1]
            noise = self(x, steps)
            clean = ((x - (1 - now).sqrt() * noise) / now.sqrt()).clamp(-1, 1)
            x = before.sqrt() * clean + (1 - before).sqrt() * torch.randn_like(noise) * 0.1
        return torch.quantile(x.abs().flatten(1), 0.9, dim=1)[:, None] * x.flatten(1)

    def loss(self, device: str) -> Tensor:
        x, noise = numbers(3, 2, 8, 8).to(device), numbers(3, 2, 8, 8, seed=1).to(device)
        steps = integers(20, 3).to(device)
        alpha = self.alphas[steps][:, None, None, None]
        noisy = alpha.sqrt() * x + (1 - alpha).sqrt() * noise
        return F.huber_loss(self(noisy, steps), noise)


class Operator(nn.Module):
    """A Fourier neural operator in one and two dimensions and a long convolution by FFT."""

    def __init__(self) -> None:
        super().__init__()
        self.lift = nn.Conv2d(1, 6, 1)
        self.weights = nn.Parameter(torch.randn(6, 6, 4, 4, dtype=torch.cfloat) / 6)
        self.decay = nn.Parameter(torch.rand(6) + 0.1)
        self.phase = nn.Parameter(torch.rand(6))
        self.out = nn.Conv2d(6, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.lift(x)
        modes = torch.fft.rfft2(x, norm="ortho")
        mixed = torch.zeros_like(modes)
        mixed[:, :, :4, :4] = torch.einsum("bixy,ioxy->boxy", modes[:, :, :4, :4], self.weights)
        x = F.gelu(torch.fft.irfft2(mixed, s=x.shape[-2:], norm="ortho") + x)
        steps = torch.arange(12, device=x.device)
        kernel = torch.polar(torch.exp(-self.decay[:, None] * steps), self.phase[:, None] * steps).real
        spectrum = torch.fft.rfft(x, n=24) * torch.fft.rfft(kernel, n=24)[:, None]
        x = x + torch.fft.irfft(spectrum, n=24)[..., :12]
        shifted = torch.fft.fftshift(torch.fft.fftn(x, dim=(-2, -1)), dim=(-2, -1))
        return self.out(x) + 0.01 * shifted.abs().mean(1, keepdim=True)

    def features(self, x: Tensor) -> Tensor:
        x = self(x).flatten(1)
        edges = torch.linspace(-2, 2, 9, device=x.device)
        counts = torch.histc(x, bins=8, min=-2, max=2)
        near = torch.bucketize(x, edges).float()
        spectrum = torch.fft.ifft(torch.fft.fft(x) * torch.fft.fftfreq(x.shape[1], device=x.device))
        return torch.cat([near, spectrum.angle(), counts.expand(len(x), -1), torch.fft.hfft(spectrum).cos()], 1)

    def loss(self, device: str) -> Tensor:
        found = self(numbers(2, 1, 12, 12).to(device))
        return F.l1_loss(found, numbers(2, 1, 12, 12, seed=1).to(device))


class Process(nn.Module):
    """A Gaussian process on learned features, and losses on distances."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 4))
        self.flow = nn.Parameter(torch.randn(4, 4) / 4)
        self.noise = nn.Parameter(torch.tensor(0.3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x) @ torch.linalg.matrix_exp(self.flow - self.flow.T)
        return torch.exp(-torch.cdist(x, x).square() / 4) + torch.eye(len(x), device=x.device) * self.noise.exp()

    def predicted(self, x: Tensor) -> Tensor:
        kernel = self(x)
        q, r = torch.linalg.qr(kernel)
        solved = torch.linalg.solve_triangular(r, q.T @ x, upper=True)
        values, vectors = torch.linalg.eigh(kernel)
        nearest = torch.cdist(x, x, p=1).topk(3, largest=False).indices
        return torch.cat([solved, (vectors * values) @ vectors.T @ x, torch.linalg.pinv(kernel), x[nearest].mean(1)], 1)

    def loss(self, device: str) -> Tensor:
        x, y = numbers(10, 3).to(device), numbers(10, 1, seed=1).to(device)
        kernel = self(x)
        factor = torch.linalg.cholesky_ex(kernel).L
        fit = (y * torch.cholesky_solve(y, factor)).sum() + 2 * factor.diagonal().log().sum()
        inverse = torch.cholesky_inverse(factor)
        embedded = self.features(x)
        triplet = F.triplet_margin_loss(embedded[:5], embedded[5:], embedded[:5].roll(1, 0))
        cosine = F.cosine_embedding_loss(embedded[:5], embedded[5:], torch.tensor([1, -1, 1, 1, -1], device=device))
        spread = F.pdist(embedded).add(1).log().mean() + torch.linalg.slogdet(kernel).logabsdet
        outer = torch.addr(kernel, y[:, 0], y[:, 0]).logsumexp(1).mean()
        return fit + triplet + cosine - 0.1 * spread + 0.01 * outer + 0.01 * inverse.diagonal().sum()


def recommender(model: Recommender, device: str) -> Results:
    offsets = torch.tensor([0, 4, 4, 9, 15, 20], device=device)
    return [model(numbers(6, 5, seed=2).to(device), integers(30, 24, seed=2).to(device), offsets)]


def graph(model: GraphNet, device: str) -> Results:
    return [model(numbers(12, 6, seed=2).to(device), integers(12, 2, 40, seed=2).to(device)).argmax(1)]


def detector(model: Detector, device: str) -> Results:
    return list(model.boxes(numbers(2, 3, 32, 32, seed=2).to(device)))


def speech(model: Speech, device: str) -> Results:
    waves = numbers(3, 400, seed=2).to(device)
    return [model(waves).argmax(-1), model.griffin_lim(waves)]


def tagger(model: Tagger, device: str) -> Results:
    return [model(integers(40, 4, 9, seed=2).to(device), torch.tensor([9, 2, 5, 7])).argmax(-1)]


def translator(model: Translator, device: str) -> Results:
    source = integers(20, 3, 7, seed=2).to(device)
    return [model.encoded(source), model.sampled(source)]


def denoiser(model: Denoiser, device: str) -> Results:
    return [model.draw(numbers(3, 2, 8, 8, seed=2).to(device))]


def operator(model: Operator, device: str) -> Results:
    return [model.features(numbers(2, 1, 12, 12, seed=2).to(device))]


def process(model: Process, device: str) -> Results:
    return [model.predicted(numbers(10, 3, seed=2).to(device))]


MODELS: dict[str, tuple[Make, Callable[..., Results], Callable[..., torch.optim.Optimizer]]] = {
    "recommender": (Recommender, recommender, lambda p: torch.optim.Adagrad(p, lr=0.05)),
    "graph": (GraphNet, graph, lambda p: torch.optim.AdamW(p, lr=0.01)),
    "vision": (Detector, detector, lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True)),
    "speech": (Speech, speech, lambda p: torch.optim.Adam(p, lr=0.01, fused=True)),
    "recurrent": (Tagger, tagger, lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5)),
    "translation": (Translator, translator, lambda p: torch.optim.NAdam(p, lr=0.01, eps=1e-4)),
    "diffusion": (Denoiser, denoiser, lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True, eps=1e-4)),
    "operator": (Operator, operator, lambda p: torch.optim.Adam(p, lr=0.01)),
    "process": (Process, process, lambda p: torch.optim.Adamax(p, lr=0.01)),
}


def run(name: str, device: str) -> Results:
    """Two steps of training and inference; the losses, the weights and the results."""
    make, infer, optimizer = MODELS[name]
    torch.manual_seed(3)
    model = make().to(device)
    optimizer = optimizer(model.parameters())
    torch.manual_seed(4)
    results = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = model.loss(device)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        results.append(loss.detach())
    model.eval()
    with torch.no_grad():
        results += infer(model, device)
    return [*results, *(parameter.detach() for parameter in model.parameters())]


@pytest.mark.parametrize("name", MODELS)
def test_values_are_those_of_the_cpu(name: str) -> None:
    with torch.neuron.match_cpu_random():
        found = run(name, "neuron")
    for a, e in zip(found, run(name, "cpu"), strict=True):
        assert a.device.type == "neuron"
        torch.testing.assert_close(a.cpu(), e, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_only_what_returns_to_the_host_waits(name: str) -> None:
    torch.neuron.clear_op_tracking()
    run(name, "neuron")
    assert torch.neuron.get_fallback_ops().keys() <= RETURN_TO_HOST
