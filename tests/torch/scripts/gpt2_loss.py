"""The mean loss of an exported GPT-2 on a file of 16-bit tokens, cut into samples, as transformers computes it.

  gpt2_loss.py DIRECTORY TOKENS LENGTH
"""

import array
import sys

import torch
from transformers import AutoModelForCausalLM

directory, path, length = sys.argv[1], sys.argv[2], int(sys.argv[3])
model = AutoModelForCausalLM.from_pretrained(directory).eval()
text = torch.tensor(array.array("H", open(path, "rb").read()).tolist())
samples = (len(text) - 1) // length
tokens = text[:samples * length].reshape(samples, length)
targets = text[1:samples * length + 1].reshape(samples, length)
with torch.no_grad():
    logits = model(tokens).logits
print("loss", torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).item())
