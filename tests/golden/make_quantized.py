#!/usr/bin/env python3
"""Writes small random checkpoints in the forms of published quantisations (models/fp8-tensor and its
neighbours), some rows of what their matrices stand for (quantized_rows.json, quantized_rows.f32), and
the logits of transformers with those values (quantized.json, quantized.f32).

    pip install -r scripts/train/requirements.txt
    tests/golden/make_quantized.py            # CPU, half a minute
    tests/golden/make_quantized.py --check    # holds the forms of compressed-tensors against its library

What the numbers stand for is computed here by numpy from what is stored. README.md describes the files.
"""

import argparse
import json
import pathlib
import tempfile

import make_goldens
import numpy as np
import torch
from make_goldens import HERE, LLAMA, write_json, write_logits
from safetensors.torch import load_file, save_file

SHAPE = {
    **LLAMA,
    "bos_token_id": 1,
    "dtype": "bfloat16",
    "eos_token_id": 2,
    "head_dim": 32,
    "hidden_size": 128,
    "intermediate_size": 256,
    "max_position_embeddings": 512,
    "num_attention_heads": 4,
    "num_hidden_layers": 1,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "tie_word_embeddings": False,
    "transformers_version": "5.24.0",
    "vocab_size": 128,
}
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def nibbles(numbers, axis, order=range(8)):
    """Each 8 numbers of an axis as a word, the first of `order` in the lowest four bits."""
    numbers = np.moveaxis(numbers.astype(np.uint32), axis, -1)
    groups = numbers.reshape(*numbers.shape[:-1], -1, 8)
    words = sum(groups[..., number] << np.uint32(4 * place) for place, number in enumerate(order))
    return np.ascontiguousarray(np.moveaxis(words, -1, axis)).view(np.int32)


def e4m3(values):
    return torch.from_numpy(values.astype(np.float32)).to(torch.float8_e4m3fn)


def as_bf16(values):
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32)).bfloat16()


def fp8(weight, scale):
    """The stored bytes and what they stand for; `scale` spreads over the matrix."""
    stored = e4m3(weight / scale)
    return stored, stored.float().numpy() * scale.astype(np.float32)


def fp8_tensor(name, weight):
    scale = np.float32(np.abs(weight).max() / 448)
    stored, values = fp8(weight, scale)
    tensors = {"weight": stored, "weight_scale": torch.tensor(scale), "input_scale": torch.tensor(0.5)}
    if name.endswith(("k_proj", "v_proj")):
        tensors["output_scale"] = torch.tensor(0.25)
    return tensors, values


def fp8_channel(_, weight):
    scale = as_bf16(np.abs(weight).max(axis=1, keepdims=True) / 448)
    stored, values = fp8(weight, scale.float().numpy())
    return {"weight": stored, "weight_scale": scale}, values


def fp8_tiles(_, weight):
    rows, cols = (-(-size // 128) for size in weight.shape)
    scale = np.empty((rows, cols), np.float32)
    for row in range(rows):
        for col in range(cols):
            tile = weight[128 * row : 128 * row + 128, 128 * col : 128 * col + 128]
            scale[row, col] = np.abs(tile).max() / 448
    spread = scale.repeat(128, 0).repeat(128, 1)[: weight.shape[0], : weight.shape[1]]
    stored, values = fp8(weight, spread)
    return {"weight": stored, "weight_scale_inv": torch.from_numpy(scale)}, values


def rounded(weight, scale, low, high):
    return np.clip(np.rint(weight / scale), low, high)


def int8_channel(_, weight):
    scale = as_bf16(np.abs(weight).max(axis=1, keepdims=True) / 127)
    spread = scale.float().numpy()
    numbers = rounded(weight, spread, -128, 127)
    stored = torch.from_numpy(numbers.astype(np.int8))
    return {"weight": stored, "weight_scale": scale}, numbers.astype(np.float32) * spread


def int8_words(_, weight):
    """Groups of 64 columns."""
    groups = weight.reshape(weight.shape[0], -1, 64)
    scale = as_bf16(np.abs(groups).max(axis=2) / 127)
    spread = scale.float().numpy().repeat(64, 1)
    numbers = rounded(weight, spread, -128, 127)
    words = np.ascontiguousarray((numbers + 128).astype(np.uint8)).view("<i4")
    tensors = {
        "weight_packed": torch.from_numpy(words),
        "weight_scale": scale,
        "weight_shape": torch.tensor(weight.shape),
    }
    return tensors, numbers.astype(np.float32) * spread


def with_zeros(weight, group):
    """Four-bit numbers [rows, cols], scales and zero points [rows, groups], and the values."""
    groups = weight.reshape(weight.shape[0], -1, group)
    low, high = np.minimum(groups.min(axis=2), 0), np.maximum(groups.max(axis=2), 0)
    scale = ((high - low) / 15).astype(np.float16)
    zeros = np.clip(np.rint(-low / scale.astype(np.float32)), 1, 15)
    spread, zero = scale.astype(np.float32).repeat(group, 1), zeros.repeat(group, 1)
    numbers = np.clip(np.rint(weight / spread) + zero, 0, 15)
    return numbers, scale, zeros, (numbers - zero).astype(np.float32) * spread


def int4_words(_, weight):
    numbers, scale, zeros, values = with_zeros(weight, 32)
    tensors = {
        "weight_packed": torch.from_numpy(nibbles(numbers, 1)),
        "weight_scale": torch.from_numpy(scale),
        "weight_shape": torch.tensor(weight.shape),
        "weight_zero_point": torch.from_numpy(nibbles(zeros, 0)),
    }
    return tensors, values


def in_order(weight, group, seed):
    """Groups of columns that are taken in a random order, and the group of each column."""
    cols = weight.shape[1]
    order = np.random.default_rng(seed).permutation(cols)
    group_of = np.empty(cols, np.int32)
    group_of[order] = np.arange(cols) // group
    return order, group_of


def int4_order(_, weight):
    """Groups of 64 columns, symmetric; as kernels round them, to F16."""
    order, group_of = in_order(weight, 64, weight.shape[1])
    groups = weight[:, order].reshape(weight.shape[0], -1, 64)
    scale = (np.abs(groups).max(axis=2) / 7).astype(np.float16)
    spread = scale.astype(np.float32)[:, group_of]
    numbers = rounded(weight, spread, -8, 7)
    tensors = {
        "weight_packed": torch.from_numpy(nibbles(numbers + 8, 1)),
        "weight_scale": torch.from_numpy(scale),
        "weight_shape": torch.tensor(weight.shape),
        "weight_g_idx": torch.from_numpy(group_of),
    }
    return tensors, (numbers * spread).astype(np.float16).astype(np.float32)


def awq(_, weight):
    numbers, scale, zeros, values = with_zeros(weight, 64)
    tensors = {
        "qweight": torch.from_numpy(nibbles(numbers.T, 1, AWQ_ORDER)),
        "qzeros": torch.from_numpy(nibbles(zeros.T, 1, AWQ_ORDER)),
        "scales": torch.from_numpy(np.ascontiguousarray(scale.T)),
    }
    return tensors, values


def gptq_tensors(numbers, scale, zeros, group_of):
    return {
        "g_idx": torch.from_numpy(group_of.astype(np.int32)),
        "qweight": torch.from_numpy(nibbles(numbers.T, 0)),
        "qzeros": torch.from_numpy(nibbles(zeros.T, 1)),
        "scales": torch.from_numpy(np.ascontiguousarray(scale.T)),
    }


def gptq(_, weight):
    numbers, scale, zeros, values = with_zeros(weight, 128)
    group_of = np.arange(weight.shape[1]) // 128
    return gptq_tensors(numbers, scale, zeros - 1, group_of), values  # 1 is added when it is read


def gptq_order(_, weight):
    order, group_of = in_order(weight, 32, weight.shape[1] + 1)
    numbers, scale, zeros, _ = with_zeros(weight[:, order], 32)
    numbers = numbers[:, np.argsort(order)]
    spread, zero = scale.astype(np.float32)[:, group_of], zeros[:, group_of]
    values = ((numbers - zero) * spread).astype(np.float16).astype(np.float32)
    return gptq_tensors(numbers, scale, zeros, group_of), values


def compressed(form, weights):
    group = {"input_activations": None, "output_activations": None, "targets": ["Linear"]}
    return {
        "config_groups": {"group_0": {**group, "weights": weights}},
        "format": form,
        "ignore": ["lm_head"],
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
    }


# What quantises a matrix, what config.json says, and what is unlike SHAPE.
MODELS = {
    "fp8-tensor": (fp8_tensor, {"activation_scheme": "static", "quant_method": "fp8"}, {}),
    "fp8-channel": (
        fp8_channel,
        compressed("float-quantized", {"num_bits": 8, "strategy": "channel", "type": "float"}),
        {},
    ),
    # Neither 128 rows nor 128 columns divide the MLP; 11 blocks of it are 6 and 5 of two shards.
    "fp8-tiles": (
        fp8_tiles,
        {"fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]},
        {"head_dim": 64, "hidden_size": 256, "intermediate_size": 352},
    ),
    "int8-channel": (
        int8_channel,
        compressed("int-quantized", {"num_bits": 8, "strategy": "channel", "type": "int"}),
        {},
    ),
    "int8-words": (
        int8_words,
        compressed("pack-quantized", {"group_size": 64, "num_bits": 8, "type": "int"}),
        {},
    ),
    "int4-words": (
        int4_words,
        compressed(
            "pack-quantized", {"group_size": 32, "num_bits": 4, "symmetric": False, "type": "int"}
        ),
        {},
    ),
    "int4-order": (
        int4_order,
        compressed(
            "pack-quantized", {"actorder": "group", "group_size": 64, "num_bits": 4, "type": "int"}
        ),
        {},
    ),
    "awq": (
        awq,
        {"bits": 4, "group_size": 64, "quant_method": "awq", "version": "gemm", "zero_point": True},
        {"num_hidden_layers": 2},
    ),
    "gptq": (
        gptq,
        {"bits": 4, "desc_act": False, "group_size": 128, "quant_method": "gptq", "sym": False},
        {"num_hidden_layers": 2},
    ),
    "gptq-order": (
        gptq_order,
        {
            "bits": 4,
            "checkpoint_format": "gptq_v2",
            "desc_act": True,
            "group_size": 32,
            "quant_method": "gptq",
        },
        {},
    ),
}


def make_model(name, seed, dense):
    """Writes the checkpoint, and to `dense` what it stands for. Returns its matrices."""
    quantise, quantization, changes = MODELS[name]
    config = SHAPE | changes
    weights = make_goldens.random_weights(config, seed)
    stored, values, matrices = {}, {}, {}
    for tensor, weight in weights.items():
        module = tensor.removesuffix(".weight")
        if not module.endswith("_proj"):
            stored[tensor] = values[tensor] = weight.bfloat16()
            continue
        parts, matrix = quantise(module, weight.numpy())
        stored |= {f"{module}.{part}": value.contiguous() for part, value in parts.items()}
        matrices[tensor] = matrix
        values[tensor] = torch.from_numpy(np.ascontiguousarray(matrix))
    folder = HERE / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config | {"quantization_config": quantization})
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    write_json(dense / "config.json", config | {"dtype": "float32"})
    save_file({k: v.float() for k, v in values.items()}, dense / "model.safetensors", {"format": "pt"})
    return folder, matrices


def check(folder, matrices):
    """Decompresses what is stored by the library that the form is named for."""
    from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import dequantize

    stored = load_file(folder / "model.safetensors")
    # Newer versions know no order of columns: what it does is done below.
    weights = MODELS[folder.name][1]["config_groups"]["group_0"]["weights"] | {"actorder": None}
    args = QuantizationArgs(**weights)
    for tensor, matrix in matrices.items():
        of = lambda part: stored.get(tensor.removesuffix(".weight") + "." + part)
        numbers, zeros = of("weight"), of("weight_zero_point")
        if of("weight_packed") is not None:
            shape = torch.Size(of("weight_shape"))
            bits = 32 * of("weight_packed").shape[1] // shape[1]
            numbers = unpack_from_int32(of("weight_packed"), bits, shape)
            if zeros is not None:
                groups = torch.Size((shape[0], of("weight_scale").shape[1]))
                zeros = unpack_from_int32(zeros, bits, groups, packed_dim=0)
        groups = of("weight_g_idx")
        order = torch.arange(matrix.shape[1]) if groups is None else groups.argsort()
        read = dequantize(numbers[:, order], of("weight_scale").float(), zeros, args, torch.float32)
        read = read[:, order.argsort()].numpy()
        if groups is not None:
            read = read.astype(np.float16).astype(np.float32)
        assert np.array_equal(read, matrix), tensor
    print(f"{folder.name}: {len(matrices)} matrices are as the library reads them")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="against compressed-tensors; writes nothing else")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows, blob, runs = [], bytearray(), []
    with tempfile.TemporaryDirectory() as folders:
        for seed, name in enumerate(MODELS, start=201):
            dense = pathlib.Path(folders) / name
            dense.mkdir()
            folder, matrices = make_model(name, seed, dense)
            if MODELS[name][1]["quant_method"] == "compressed-tensors" and arguments.check:
                check(folder, matrices)
            for tensor, matrix in matrices.items():
                picked = [0, int(np.random.default_rng(seed).integers(1, len(matrix))), len(matrix) - 1]
                rows.append(
                    {
                        "model": f"tests/golden/models/{name}",
                        "tensor": tensor,
                        "rows": picked,
                        "cols": matrix.shape[1],
                        "offset_bytes": len(blob),
                    }
                )
                blob += matrix[picked].astype("<f4").tobytes()
            runs.append((folder, 0, dense))
        if arguments.check:
            return
        write_logits("quantized", runs)
    (HERE / "quantized_rows.f32").write_bytes(blob)
    lines = ",\n".join("    " + json.dumps(row) for row in rows)
    (HERE / "quantized_rows.json").write_text(f'{{\n  "matrices": [\n{lines}\n  ]\n}}\n')


if __name__ == "__main__":
    main()
