"""Training documents: stories, and dialogues in the chat format.

    python make_data.py --count 3      print some documents
"""

import argparse
from pathlib import Path
from random import Random

import jinja2

from language import make_dialogue, make_story

END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"

CHAT_TEMPLATE = (Path(__file__).parent / "chat_template.jinja").read_text().rstrip("\n")
_TEMPLATE = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(CHAT_TEMPLATE)


def render_chat(messages, add_generation_prompt=False):
    """Return the text of a dialogue with its special tokens."""
    return _TEMPLATE.render(messages=messages, add_generation_prompt=add_generation_prompt)


def make_document(random):
    """Return one training document, with its end-of-text token."""
    text = make_story(random) if random.random() < 0.5 else render_chat(make_dialogue(random))
    return text + END_OF_TEXT


def make_documents(seed, count):
    random = Random(seed)
    return [make_document(random) for _ in range(count)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print("\n\n".join(make_documents(arguments.seed, arguments.count)))
