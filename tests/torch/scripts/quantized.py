"""Compares quantized exports of a GPT-2 with PyPI's gguf and with transformers.

  quantized.py MODEL DIRECTORY...

MODEL is the run's model.safetensors, a DIRECTORY what `dtrun export --quantize` made of it. Prints of each by how much the logits
of transformers' model of it differ from those of a GPT-2 whose matrices are quantized and dequantized by gguf.
"""

import json
import struct
import sys
import tempfile
from pathlib import Path

import numpy
import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

MATRICES = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
NAMES = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "ln_1": "attn_norm", "attn.c_attn": "attn_qkv",
         "attn.c_proj": "attn_output", "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}


def read(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    about = header.pop("__metadata__")
    values = numpy.frombuffer(data[8 + size:], dtype=numpy.float32)
    return about, {name: values[t["data_offsets"][0] // 4:t["data_offsets"][1] // 4].reshape(t["shape"]) for name, t in header.items()}


def gguf_name(name):
    layer, _, kind = name.rpartition(".")
    if layer.startswith("h."):
        _, number, layer = layer.split(".", 2)
        return f"blk.{number}.{NAMES[layer]}.{kind}"
    return f"{NAMES[layer]}.{kind}"


def check_gguf(path, tensors):
    """Each tensor is what the package makes of the weights, and the file what its writer makes of keys and tensors. Returns the
    dequantized weights."""
    import gguf
    reader = gguf.GGUFReader(path)
    types = gguf.GGMLQuantizationType
    kind = {2: types.Q4_0, 7: types.Q8_0}[reader.fields["general.file_type"].contents()]
    there = {tensor.name: tensor for tensor in reader.tensors}
    assert len(there) == len(tensors)
    back = {}
    for name, weights in tensors.items():
        tensor, flipped = there[gguf_name(name)], name.endswith(MATRICES)
        rows = numpy.ascontiguousarray(weights.T if flipped else weights)
        if not flipped and name != "wte.weight":
            assert tensor.tensor_type == types.F32 and (tensor.data.reshape(weights.shape) == weights).all(), name
            back[name] = weights
            continue
        assert tensor.tensor_type == kind, name
        assert (tensor.data == gguf.quants.quantize(rows, kind)).all(), name
        rows = gguf.quants.dequantize(tensor.data, kind)
        back[name] = rows.T if flipped else rows
    with tempfile.TemporaryDirectory() as folder:
        writer = gguf.GGUFWriter(Path(folder) / "again.gguf", "gpt2")
        for name, field in reader.fields.items():
            if name.startswith("GGUF.") or name == "general.architecture":
                continue
            writer.add_key_value(name, field.contents(), field.types[0], field.types[1] if len(field.types) > 1 else None)
        for tensor in reader.tensors:
            quantized = tensor.tensor_type != types.F32
            data = tensor.data if quantized else tensor.data.reshape(tensor.shape[::-1])
            writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        assert (Path(folder) / "again.gguf").read_bytes() == Path(path).read_bytes()
    return back


def compare(directory, hub, tensors):
    back = check_gguf(directory / "model.gguf", tensors)
    # transformers does not look at a GGUF's context length.
    theirs = AutoModelForCausalLM.from_pretrained(directory, gguf_file="model.gguf", dtype=torch.float32,
                                                  n_positions=hub["n_positions"]).eval()
    ours = GPT2LMHeadModel(GPT2Config(**hub)).eval()
    missing = ours.load_state_dict({f"transformer.{name}": torch.tensor(numpy.ascontiguousarray(v)) for name, v in back.items()},
                                   strict=False)
    assert set(missing.missing_keys) <= {"lm_head.weight"} and not missing.unexpected_keys, missing
    ours.tie_weights()
    tokens = torch.arange(3 * hub["n_positions"]).reshape(3, -1) * 7 % hub["vocab_size"]
    with torch.no_grad():
        a, b = ours(tokens).logits, theirs(tokens).logits
    print(directory.name, "differs by", (a - b).abs().max().item(), "of", a.abs().max().item())


def main():
    about, tensors = read(Path(sys.argv[1]))
    torch.set_num_threads(1)
    for directory in sys.argv[2:]:
        compare(Path(directory), json.loads(about["config"]), tensors)


if __name__ == "__main__":
    main()
