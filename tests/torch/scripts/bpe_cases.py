"""Trains byte-level BPEs with Hugging Face's tokenizers, and writes what they make of many texts.

bpe_cases.py OUT TEXT...: for each of its tokenizers OUT/NAME/tokenizer.json, and OUT/NAME/cases.jsonl with lines
{"text": ..., "ids": [...]}. TEXT...: files of real text to train on and to encode.
"""
import json
import pathlib
import random
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers, decoders, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

# Characters that patterns treat in their own ways, and some that only look alike.
ODD = list(" \t\n\r\x0b\x0c\x1c\x85\u00a0\u1680\u180e\u2000\u200b\u2028\u2029\u202f\u205f\u3000\ufeff'’ʼ-_.,!?0123½²٣४Ⅷaszé"
           "ſK中文字あ한국어Ωжשر\u0301\u200d👍🏽🇩🇪\U0001f468\U00010400𝟘") + [
    "'s", "'S", "'ll", "'LL", "'re", "'ve", "'t", "'ſ", "n't", "  ", "\n\n", "\r\n", " \n", "<|endoftext|>", "<|end", "|>", "<a b>", "<a"]
SENTENCES = [
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "Voix ambiguë d’un cœur qui, au zéphyr, préfère les jattes de kiwis.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "いろはにほへと ちりぬるを わかよたれそ つねならむ。",
    "我能吞下玻璃而不伤身体。1234567 ２０２４年",
    "나는 유리를 먹을 수 있어요. 그래도 아프지 않아요",
    "عندما يريد العالم أن يتكلّم، فهو يتحدّث بلغة يونيكود.",
    "मैं काँच खा सकता हूँ और मुझे उससे कोई चोट नहीं पहुंचती.",
    "Ξεσκεπάζω τὴν ψυχοφθόρα βδελυγμία.",
    "def f(x):\n\treturn {'a': x**2, \"b\": [1, 2.5e-3]}  # it's we'll they'd I'm\n\n\n    pass\n",
]


def random_texts(count, seed):
    rng = random.Random(seed)
    # Assigned in the Unicode of PCRE2, which may be older than that of tokenizers.
    letters = [chr(c) for c in range(0x20, 0x1f900)
               if unicodedata.category(chr(c)) not in ("Cn", "Cs") and c < 0x11000 or 0x1f300 <= c < 0x1f600]
    for _ in range(count):
        text = ""
        for _ in range(rng.randrange(1, 40)):
            kind = rng.random()
            if kind < 0.4:
                text += rng.choice(ODD) * rng.choice((1, 1, 1, 2, 5))
            elif kind < 0.6:
                text += rng.choice(letters)
            else:
                text += "".join(rng.choice("etaoin shrdlu") for _ in range(rng.randrange(1, 8)))
        yield text


def make(files, merges, pattern=None, prefix=False, added=()):
    tokenizer = Tokenizer(models.BPE())
    if pattern is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=256 + 1 + merges, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train([str(f) for f in files], trainer)
    tokenizer.add_tokens(list(added))
    return tokenizer


def main():
    out, files = pathlib.Path(sys.argv[1]), [pathlib.Path(f) for f in sys.argv[2:]]
    texts = [f.read_bytes().decode("utf-8") for f in files]
    texts += SENTENCES + list(random_texts(3000, 1))
    texts += ["", "a" * 100, "ab" * 5000, " " * 3000, "-" * 2000, "x" * 49, "\n" * 200, "é" * 1000]
    added = [AddedToken("<a b>", normalized=False), AddedToken("ing", normalized=True), AddedToken("<a", normalized=False)]
    for name, tokenizer in {
        "small": make(files, 512),
        "large": make(files, 5000),
        "prefix": make(files, 1000, prefix=True),
        "added": make(files, 1000, added=added),
        "prefix_added": make(files, 700, prefix=True, added=added),
        "llama3": make(files, 2000, LLAMA3),
        "qwen2": make(files, 1000, QWEN2),
    }.items():
        (out / name).mkdir()
        tokenizer.save(str(out / name / "tokenizer.json"))
        with open(out / name / "cases.jsonl", "w", encoding="utf-8") as cases:
            for text in texts:
                ids = tokenizer.encode(text, add_special_tokens=False).ids
                cases.write(json.dumps({"text": text, "ids": ids}, ensure_ascii=False) + "\n")
    # The same in the files of GPT-2, and merges as pairs, as texts.
    (out / "files").mkdir()
    small = Tokenizer.from_file(str(out / "small/tokenizer.json"))
    small.model.save(str(out / "files"))
    (out / "files/cases.jsonl").write_bytes((out / "small/cases.jsonl").read_bytes())
    (out / "strings").mkdir()
    whole = json.loads((out / "small/tokenizer.json").read_text(encoding="utf-8"))
    whole["model"]["merges"] = [m if isinstance(m, str) else " ".join(m) for m in whole["model"]["merges"]]
    (out / "strings/tokenizer.json").write_text(json.dumps(whole, ensure_ascii=False), encoding="utf-8")
    (out / "strings/cases.jsonl").write_bytes((out / "small/cases.jsonl").read_bytes())


main()
