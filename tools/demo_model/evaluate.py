"""Judge generated texts with the grammar that made the training data.

    python evaluate.py OUTPUTS.json

OUTPUTS.json is a list of {"prompt": ..., "text": ...}; the text continues the prompt, which is
the start of a story or a rendered chat. Further members are ignored. The exit status is 0 if

  - every word is in the grammar's vocabulary,
  - the grammar accepts at least 90 % of the sentences,
  - no sequence of four words occurs three times within a text.

A sentence or a word that the end of a text cuts off is accepted if an accepted sentence or word
begins with it.
"""

import argparse
import json
import re
import sys
from collections import Counter
from pathlib import Path

from grammar import split_sentences, words
from language import ANSWERS, GRAMMAR

REQUIRED_SENTENCES = 0.9
ALLOWED_REPEATS = 2
SPECIAL_TOKEN = re.compile(r"<\|\w+\|>")
VOCABULARY = GRAMMAR.vocabulary()


def parts(output):
    """Return the prompt's part that belongs to the text, and the text, without special tokens."""
    prompt = "" if SPECIAL_TOKEN.search(output["prompt"]) else output["prompt"]
    return prompt, SPECIAL_TOKEN.sub("", output["text"])


def unknown_words(output):
    prompt, text = parts(output)
    found = words(re.search(r"\w*$", prompt).group() + text)
    cut_off = bool(re.search(r"\w$", text))
    return [word for i, word in enumerate(found)
            if word not in VOCABULARY
            and not (cut_off and i == len(found) - 1 and any(w.startswith(word) for w in VOCABULARY))]


def judge_sentences(output):
    """Return the sentences that the text takes part in, each with whether it is accepted."""
    prompt, text = parts(output)
    before = split_sentences(prompt)
    sentences = split_sentences(prompt + text)
    finished = len(before)  # the text adds nothing to the prompt's complete sentences
    if before and not GRAMMAR.accepts_sentence(before[-1]):
        finished -= 1
    judged = sentences[finished:]
    return [(sentence, GRAMMAR.accepts_sentence(sentence, prefix=i == len(judged) - 1))
            for i, sentence in enumerate(judged)]


def is_consistent(output):
    """Return whether the grammar derives the whole text, with its names, pronouns and facts."""
    prompt, text = parts(output)
    whole = (prompt + text).rstrip("\n")
    return any(GRAMMAR.accepts(rule, whole, prefix=True) for rule in ANSWERS)


def most_repeated(texts):
    """Return the most frequent sequence of four words and how often it occurs."""
    counts = Counter()
    for text in texts:
        found = words(text)
        counts.update(zip(found, found[1:], found[2:], found[3:]))
    return max(counts.items(), key=lambda item: item[1], default=((), 0))


def evaluate(outputs):
    """Print the figures and return whether the outputs pass."""
    unknown = [word for output in outputs for word in unknown_words(output)]
    judged = [result for output in outputs for result in judge_sentences(output)]
    accepted = sum(ok for _, ok in judged)
    repeats = max(most_repeated(["".join(parts(output))])[1] for output in outputs)
    overall_sequence, overall = most_repeated([parts(output)[1] for output in outputs])
    consistent = sum(map(is_consistent, outputs))

    print(f"texts                              {len(outputs)}")
    print(f"words outside the vocabulary       {len(unknown)} {unknown or ''}")
    print(f"sentences accepted                 {accepted} of {len(judged)} ({100 * accepted / len(judged):.1f} %)")
    for sentence, ok in judged:
        if not ok:
            print(f"  not accepted: {sentence}")
    print(f"texts accepted as a whole          {consistent} of {len(outputs)}")
    print(f"most repeats of 4 words in a text  {repeats}")
    print(f"most repeats of 4 words over all   {overall} ({' '.join(overall_sequence)})")
    return not unknown and accepted >= REQUIRED_SENTENCES * len(judged) and repeats <= ALLOWED_REPEATS


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("outputs", type=Path)
    passed = evaluate(json.loads(parser.parse_args().outputs.read_text()))
    print("passed" if passed else "failed")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
