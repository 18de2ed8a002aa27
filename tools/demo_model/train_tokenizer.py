"""Train the tokenizer: byte-level BPE with the pre-tokenizer of Qwen.

    python train_tokenizer.py MODEL_FOLDER

Writes tokenizer.json and tokenizer_config.json.
"""

import argparse
import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from make_data import CHAT_TEMPLATE, END_OF_TEXT, TURN_END, TURN_START, make_documents

VOCABULARY_SIZE = 2048
DOCUMENTS = 30_000
SEED = 1
SPECIAL_TOKENS = [END_OF_TEXT, TURN_START, TURN_END]

SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def train_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE - len(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False)
    tokenizer.train_from_iterator(plain_texts(), trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    assert tokenizer.get_vocab_size() == VOCABULARY_SIZE
    return tokenizer


def plain_texts():
    """Yield training documents without their special tokens."""
    for text in make_documents(SEED, DOCUMENTS):
        for token in SPECIAL_TOKENS:
            text = text.replace(token, "\n")
        yield text


def tokenizer_config(tokenizer):
    special = {
        str(tokenizer.token_to_id(token)): {
            "content": token, "lstrip": False, "normalized": False,
            "rstrip": False, "single_word": False, "special": True}
        for token in SPECIAL_TOKENS}
    return {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": special,
        "additional_special_tokens": [TURN_START, TURN_END],
        "bos_token": None,
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": TURN_END,
        "errors": "replace",
        "model_max_length": 4096,
        "pad_token": END_OF_TEXT,
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = json.dumps(tokenizer_config(tokenizer), indent=2, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(config + "\n")


if __name__ == "__main__":
    main()
