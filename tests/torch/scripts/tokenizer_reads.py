"""tokenizer_reads.py DIR TEXT: what transformers' tokenizers in DIR make of a text, and of its ids again."""
import sys

from transformers import AutoTokenizer, GPT2TokenizerFast

directory, text = sys.argv[1:]
for kind in (AutoTokenizer, GPT2TokenizerFast):
    tokenizer = kind.from_pretrained(directory)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    print(type(tokenizer).__name__, tokenizer.eos_token, tokenizer.eos_token_id, tokenizer.model_max_length)
    print("ids", *ids)
    assert tokenizer.decode(ids) == text, tokenizer.decode(ids)
