#!/usr/bin/env python3
"""Writes families.json and spm_*.model beside this file: small tokenizers set up like those of published model
families, and the results of Hugging Face's tokenizers 0.23.3 and sentencepiece 0.2.3 (both from PyPI) for some texts.

    python3 -m venv venv && venv/bin/pip install tokenizers==0.23.3 sentencepiece==0.2.3
    venv/bin/python tests/data/text/make_families.py"""

import base64
import io
import json
import pathlib
import tempfile

import sentencepiece
from tokenizers import Tokenizer, models, trainers, pre_tokenizers

FOLDER = pathlib.Path(__file__).parent

CORPUS = [
    "The quick brown fox jumps over the lazy dog; the dog sleeps.",
    "She sells sea shells by the sea shore, and he doesn't know what they're for.",
    "In 2024 the price rose from 1,299.50 to 12345 crowns (a change of 8.7%).",
    "def encode(text: str) -> list[int]:\n    return [ord(c) for c in text]\n",
    "Der schnelle braune Fuchs springt über den faulen Hund. Größe und Maß.",
    "El veloz murciélago hindú comía feliz cardillo y kiwi.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "敏捷的棕色狐狸跳过了懒狗。你好世界,今天天气很好。",
    "いろはにほへと ちりぬるを。カタカナとひらがな。",
    "다람쥐 헌 쳇바퀴에 타고파. 안녕하세요 세계.",
    "السلام عليكم ورحمة الله وبركاته",
    "if (a != b && c >= 10) { return a + b; } // done\n\n\n\tend",
]

TEXTS = [
    "", " ", "  ", "\n", "\n\n\n", " \n \t x", "a", " a", "a ", "  two  spaces  ", "Hello, world!", "hello   world",
    "The quick brown fox's 123 dogs don't jump 4567890 times.", "I'LL WE'RE it's", "x=1;y==2\n\treturn x_y",
    "CamelCaseWords and HTTPServer URLs", "Größe über Maß", "ÀÉÎõü naïve café", "cafe\u0301 n\u0303", "é́", "ﬁne ﬀect ①②½ ㎏",
    "ＦＵＬＬ　ｗｉｄｔｈ １２３", "你好世界,今天天气很好。", "漢字かなカナ混じり文", "안녕하세요 세계", "السلام عليكم", "Съешь ещё 12 булок",
    "😀👍🏽👨‍👩‍👧 emoji", "a\u200db\u200cc", "tab\tand\u00a0nbsp\u3000wide", "...!?--«»“quotes”", "price: $1,299.50 (8.7%)",
    "http://example.com/a?b=c&d=%20", "<s>hello</s>", "<|end|> after", "before <|end|>after", "▁literal▁ ▁", "१२३ ٤٥٦ 𝟙𝟚",
    "line one\r\nline two\r\n\r\n", "ends with space \n ", "123456789012", "1 22 333 4444", "a1b2c3", "[INST] hi [/INST]", "\x00\x01\x7f",
    "$x^2+y^2=z^2$ `code` ~tilde~ |pipe|", "{'a': [1, 2]}", "word\u0300\u0301\u0302 marks", "ünïcödé ÜPPER", "ǅ titlecase ǆ",
]

GPT4_LIKE = {
    "deepseek_v3": [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
                    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "tekken": [r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "llama3": [r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "gpt4o_han": [r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def split(pattern, kind="Regex", behavior="Isolated"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": False}


def sequence(key, *items):
    return {"type": "Sequence", key: list(items)}


DEEPSEEK_V2 = sequence(
    "pretokenizers", split("[\r\n]"), split(r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ]+"),
    split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"), split(r"\s+$"), split("[一-龥ࠀ-一가-퟿]+"),
    {"type": "Digits", "individual_digits": True}, BYTE_LEVEL)
SPM_DECODER = sequence("decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                       {"type": "ByteFallback"}, {"type": "Fuse"},
                       {"type": "Strip", "content": " ", "start": 1, "stop": 0})
GEMMA_DECODER = sequence("decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                         {"type": "ByteFallback"}, {"type": "Fuse"})
LEGACY = sequence("normalizers", {"type": "Prepend", "prepend": "▁"},
                  {"type": "Replace", "pattern": {"String": " "}, "content": "▁"})
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}


def template(before, after=()):
    def item(token):
        return {"SpecialToken": {"id": token, "type_id": 0}}
    both = [*before, *after]
    return {"type": "TemplateProcessing",
            "single": [*map(item, before), {"Sequence": {"id": "A", "type_id": 0}}, *map(item, after)],
            "pair": [*map(item, before), {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {token: {"id": token, "ids": [ID_OF[token]], "tokens": [token]} for token in both}}


ID_OF = {}


def trained(model, trainer, pre=None):
    """Returns the "model" of a tokenizer.json, trained on CORPUS."""
    tokenizer = Tokenizer(model)
    if pre:
        tokenizer.pre_tokenizer = pre
    tokenizer.train_from_iterator(CORPUS, trainer)
    return json.loads(tokenizer.to_str())["model"]


def byte_level_model():
    return trained(models.BPE(), trainers.BpeTrainer(vocab_size=420, show_progress=False,
                   initial_alphabet=pre_tokenizers.ByteLevel.alphabet()), pre_tokenizers.ByteLevel(add_prefix_space=False))


def spm_bpe_model():
    """Returns a model with byte fallback, as in Llama 2 and Gemma."""
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    model = trained(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True),
                    trainers.BpeTrainer(vocab_size=520, show_progress=False, special_tokens=specials, limit_alphabet=60),
                    pre_tokenizers.Metaspace())
    model["vocab"]["▁▁"] = len(model["vocab"])
    model["merges"].insert(0, ["▁", "▁"])
    return model


def added(first, *tokens):
    return [{"id": first + i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": special} for i, (token, special) in enumerate(tokens)]


def spm_train(name, **options):
    """Returns a SentencePiece model trained on CORPUS, as bytes."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_writer=out, minloglevel=2,
                                             num_threads=1, **options)
    (FOLDER / f"spm_{name}.model").write_bytes(out.getvalue())
    return out.getvalue()


def charsmap_of(proto):
    """Returns precompiled_charsmap (field 2) of normalizer_spec (field 3)."""
    def fields(data):
        pos = 0

        def varint():
            nonlocal pos
            value = shift = 0
            while True:
                byte = data[pos]
                pos += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value
        while pos < len(data):
            key = varint()
            if key & 7 == 2:
                length = varint()
                yield key >> 3, data[pos:pos + length]
                pos += length
            elif key & 7 == 5:
                pos += 4
            else:
                varint()
    for number, value in fields(proto):
        if number == 3:
            for inner, blob in fields(value):
                if inner == 2:
                    return blob
    raise SystemExit("no charsmap in the model")


def case(name, model, added_tokens, **parts):
    document = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens, "normalizer": None,
                "pre_tokenizer": None, "post_processor": None, "decoder": None, **parts, "model": model}
    tokenizer = Tokenizer.from_str(json.dumps(document))
    rows = []
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        rows.append({"text": text, "ids": ids, "ids_special": tokenizer.encode(text).ids,
                     "decoded": tokenizer.decode(ids), "decoded_all": tokenizer.decode(ids, skip_special_tokens=False)})
    return {"name": name, "parts": {key: document[key] for key in ("added_tokens", "normalizer", "pre_tokenizer",
                                                                  "post_processor", "decoder")}, "rows": rows}


def byte_level_cases(model):
    size = len(model["vocab"])
    tokens = added(size, ("<|begin|>", True), ("<|end|>", True), ("<tool>", False))
    ID_OF.update({token["content"]: token["id"] for token in tokens})
    out = []
    for name, patterns in GPT4_LIKE.items():
        pre = sequence("pretokenizers", *map(split, patterns), BYTE_LEVEL)
        post = sequence("processors", {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
                        template(["<|begin|>"]))
        out.append(case(name, model, tokens, pre_tokenizer=pre, post_processor=post,
                        decoder={**BYTE_LEVEL, "use_regex": True}))
    out.append(case("deepseek_v2", model, tokens, pre_tokenizer=DEEPSEEK_V2, decoder=BYTE_LEVEL,
                    normalizer=sequence("normalizers"), post_processor=template(["<|begin|>"])))
    out.append(case("roberta", model, tokens, pre_tokenizer={**BYTE_LEVEL, "add_prefix_space": True, "use_regex": True},
                    decoder=BYTE_LEVEL, post_processor={"type": "RobertaProcessing", "sep": ["<|end|>", size + 1],
                    "cls": ["<|begin|>", size], "trim_offsets": True, "add_prefix_space": False}))
    return out


def spm_style_cases(model):
    tokens = added(0, ("<unk>", True), ("<s>", True), ("</s>", True)) + added(len(model["vocab"]), ("[INST]", True), ("<|end|>", True))
    ID_OF.update({token["content"]: token["id"] for token in tokens})
    gemma_split = split(" ", "String", "MergedWithPrevious")
    return [
        case("mistral_v1", model, tokens, normalizer=LEGACY, post_processor=template(["<s>"]), decoder=SPM_DECODER),
        case("mistral_v3", model, tokens, pre_tokenizer=METASPACE, post_processor=template(["<s>"]), decoder=SPM_DECODER),
        case("gemma", model, tokens, normalizer={"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
             pre_tokenizer=gemma_split, post_processor=template(["<s>"], ["</s>"]), decoder=GEMMA_DECODER),
    ]


def unigram_cases(model, charsmap):
    tokens = added(0, ("<unk>", True), ("</s>", True)) + added(len(model["vocab"]), ("<|end|>", True))
    ID_OF.update({token["content"]: token["id"] for token in tokens})
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    precompiled = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()}
    post = template([], ["</s>"])
    extra = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}
    return [
        case("t5", model, tokens, normalizer=precompiled, post_processor=post, decoder=metaspace,
             pre_tokenizer=sequence("pretokenizers", {"type": "WhitespaceSplit"}, metaspace)),
        case("xlmr", model, tokens, normalizer=sequence("normalizers", precompiled, extra), post_processor=post,
             decoder=metaspace, pre_tokenizer=metaspace),
        case("bert_post", model, tokens, decoder=metaspace, pre_tokenizer=metaspace,
             post_processor={"type": "BertProcessing", "sep": ["</s>", 1], "cls": ["<unk>", 0]}),
    ]


def spm_rows(name):
    library = sentencepiece.SentencePieceProcessor(model_file=str(FOLDER / f"spm_{name}.model"))
    return {"name": name, "rows": [{"text": text, "ids": library.encode(text)} for text in TEXTS
                                   if not any(mark in text for mark in ("<s>", "</s>", "[INST]"))]}


def main():
    with tempfile.TemporaryDirectory() as folder:
        rules = pathlib.Path(folder) / "rules.tsv"
        pairs = [("ﬁ", "fi"), ("ﬀ", "ff"), ("①", "1"), ("½", "1/2"), ("㎏", "kg"), ("　", " "), ("\u00a0", " "), ("\t", " "),
                 ("\n", " "), ("\r", " "), ("e\u0301", "é"), ("n\u0303", "ñ"), ("\x01", ""), ("\x7f", ""), ("１", "1"), ("２", "2")]
        rules.write_text("".join("{}\t{}\n".format(" ".join(f"{ord(c):X}" for c in a), " ".join(f"{ord(c):X}" for c in b))
                                 for a, b in pairs))
        unigram = spm_train("unigram", vocab_size=200, model_type="unigram", normalization_rule_tsv=str(rules), character_coverage=0.98,
                            hard_vocab_limit=False)
    llama = dict(model_type="bpe", vocab_size=560, byte_fallback=True, normalization_rule_name="identity",
                 remove_extra_whitespaces=False, split_digits=True, character_coverage=0.98, max_sentence_length=10000)
    spm_train("llama", **llama, control_symbols=["[INST]"], allow_whitespace_only_pieces=True)
    spm_train("gemma", **llama, add_dummy_prefix=False, user_defined_symbols=["<|end|>", "\n\n"])

    byte_level = byte_level_model()
    spm_bpe = spm_bpe_model()
    tokens = [["<unk>", 0.0], ["</s>", 0.0]]
    library = sentencepiece.SentencePieceProcessor(model_proto=unigram)
    seen = {"<unk>", "<s>", "</s>"}
    for i in range(library.get_piece_size()):
        if library.id_to_piece(i) not in seen:
            tokens.append([library.id_to_piece(i), library.get_score(i)])
    unigram_model = {"type": "Unigram", "unk_id": 0, "vocab": tokens, "byte_fallback": False}
    fallback = {**unigram_model, "byte_fallback": True,
                "vocab": tokens + [[f"<0x{i:02X}>", 0.0] for i in range(256)]}
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    groups = [
        {"model": byte_level, "cases": byte_level_cases(byte_level)},
        {"model": {**byte_level, "ignore_merges": True},
         "cases": [byte_level_cases({**byte_level, "ignore_merges": True})[2]]},
        {"model": spm_bpe, "cases": spm_style_cases(spm_bpe)},
        {"model": unigram_model, "cases": unigram_cases(unigram_model, charsmap_of(unigram))},
        {"model": fallback, "cases": [case("unigram_bytes", fallback, [], pre_tokenizer=metaspace, decoder=SPM_DECODER)]},
    ]
    document = {"groups": groups, "sentencepiece": [spm_rows(name) for name in ("llama", "gemma", "unigram")]}
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    (FOLDER / "families.json").write_text(text.replace('{"text":', '\n{"text":').replace('{"name":', '\n{"name":') + "\n")


main()
