"""Tests that the grammar accepts the texts that it generates, and rejects texts that it cannot generate.

    python -m unittest test_grammar
"""

import unittest
from random import Random

from grammar import split_sentences
from language import ANSWERS, GRAMMAR, make_dialogue, make_story


class GrammarTest(unittest.TestCase):
    def test_accepts_generated_stories_and_their_beginnings(self):
        random = Random(1)
        for _ in range(200):
            story = make_story(random)
            beginning = story[:random.randrange(len(story))]
            self.assertTrue(GRAMMAR.accepts("story", story), story)
            self.assertTrue(GRAMMAR.accepts("story", beginning, prefix=True), beginning)
            self.assertFalse(GRAMMAR.accepts("story", beginning), beginning)
            for sentence in split_sentences(story):
                self.assertTrue(GRAMMAR.accepts_sentence(sentence), sentence)

    def test_accepts_generated_answers(self):
        random = Random(2)
        for _ in range(500):
            for message in make_dialogue(random):
                if message["role"] == "assistant":
                    answer = message["content"]
                    self.assertTrue(any(GRAMMAR.accepts(rule, answer) for rule in ANSWERS), answer)

    def test_rejects_wrong_words_facts_and_sums(self):
        self.assertTrue(GRAMMAR.accepts_sentence("7 plus 5 is 12."))
        for sentence in ("7 plus 5 is 13.", "A fox lives by the sea, and its home is a cosy den.",
                         "A mouse is bigger than a bear.", "Ruby fox the went.", "Where do foxes live?"):
            self.assertFalse(GRAMMAR.accepts_sentence(sentence), sentence)

    def test_rejects_inconsistent_stories(self):
        start = "There once was a brave fox called Ruby. "
        self.assertTrue(GRAMMAR.accepts("story", start + "She slept in a cosy den", prefix=True))
        self.assertFalse(GRAMMAR.accepts("story", start + "He slept in a cosy den", prefix=True))
        self.assertFalse(GRAMMAR.accepts("story", start + "She slept in a warm stable", prefix=True))


if __name__ == "__main__":
    unittest.main()
