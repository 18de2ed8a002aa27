#!/usr/bin/env python3
"""Checks the scores that lm-evaluation-harness gets through TesseraLM: tests/python/harness_test.py TESSERA MODEL_FOLDER

Runs in a Python that has tessera_engine and lm-eval. The test writes task files for the harness's three kinds of tasks, with
data that it makes: sums and sentences with four answers each (loglikelihood), sums to answer (generate_until), and texts
(loglikelihood_rolling). The expected results are computed from the output of `tessera score` and `tessera generate`.
Catches: log-probabilities of other tokens than the continuation's, a stop text that is left in the answer, and a model
that the harness does not accept.

The last line is "N passed, N failed"."""

import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
try:
    import lm_eval
    from lm_eval.tasks import TaskManager
except ImportError as missing:
    print(f"skipped: lm-eval is not installed: {missing}")
    sys.exit(77)
from tessera_engine.lm_eval import TesseraLM  # noqa: E402  (whether the harness is there is known now)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "server"))
from served import run_cases  # noqa: E402

SUMS = [(a, b) for a in range(2, 10) for b in range(3, 9, 2)]
OFFSETS = [0, 1, -1, 3]  # offsets of the four answers from the sum
WORDS = [("Once upon a ", ["time", "house", "and", "7"]), ("The sun was ", ["warm", "of", "why", "3"])]
TEXTS = ["Once upon a time there was a little dog who liked to play in the garden.",
         "The sun was warm, and the children ran to the river."]
NEAR = 2e-3  # accepted difference of a log-probability: batch sizes differ, in float32

CHOICES = """
task: tessera_choices
output_type: multiple_choice
doc_to_text: "{{context}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{label}}"
target_delimiter: ""
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""
ANSWERS = """
task: tessera_answers
output_type: generate_until
doc_to_text: "{{context}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["."], max_gen_toks: 16, do_sample: false}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
ROLLING = """
task: tessera_texts
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: byte_perplexity, aggregation: weighted_perplexity, higher_is_better: false}]
"""
METRICS = {"tessera_choices": "acc,none", "tessera_answers": "exact_match,none", "tessera_texts": "byte_perplexity,none"}


def question(a, b):
    return f"<|im_start|>user\nWhat is {a} plus {b}?<|im_end|>\n<|im_start|>assistant\n"


def choice_docs():
    """Makes the documents. Some contexts end in a blank, which the tokenizer joins with the following word."""
    sums = [{"context": question(a, b), "label": 0,
             "choices": [f"{a} plus {b} is {a + b + offset}.<|im_end|>" for offset in OFFSETS]} for a, b in SUMS]
    return [*sums, *({"context": context, "label": 0, "choices": choices} for context, choices in WORDS)]


def answer_docs():
    return [{"context": question(a, b), "answer": f"{a} plus {b} is {a + b}"} for a, b in SUMS[::3]]


def write_tasks(folder):
    for text, docs in ((CHOICES, choice_docs()), (ANSWERS, answer_docs()), (ROLLING, [{"text": text} for text in TEXTS])):
        name = text.split()[1]
        data = folder / f"{name}.jsonl"
        data.write_text("".join(json.dumps(doc) + "\n" for doc in docs))
        (folder / f"{name}.yaml").write_text(
            f"{text}dataset_path: json\ndataset_kwargs: {{data_files: {{test: {data}}}}}\ntest_split: test\n")


def evaluate(model, folder):
    """Returns the harness's results, and its samples in the order of the documents."""
    told = lm_eval.simple_evaluate(model, tasks=list(METRICS), task_manager=TaskManager(include_path=str(folder), include_defaults=False),
                                   bootstrap_iters=0, log_samples=True)
    return ({name: told["results"][name][metric] for name, metric in METRICS.items()},
            {name: sorted(told["samples"][name], key=lambda sample: sample["doc_id"]) for name in METRICS})


class Cases:
    def __init__(self, program, model):
        self.program, self.model = program, model
        with tempfile.TemporaryDirectory() as folder:
            os.environ["HF_HOME"] = folder
            write_tasks(pathlib.Path(folder))
            harness = TesseraLM(model, batch=16, dtype="float32", disable_cost_measurement=True, max_total_tokens=8192,
                                piecewise_cuda_graph_tokens=[64, 512], cuda_graph_bs=[1, 4, 16])
            self.results, self.samples = evaluate(harness, pathlib.Path(folder))
            harness.shutdown()
        print(json.dumps(self.results))

    def _program(self, command, *words):
        done = subprocess.run([self.program, command, "--model-path", self.model, "--dtype", "float32", "--log-level", "error", *words],
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _logprobs(self, prompts):
        with tempfile.TemporaryDirectory() as folder:
            told = self._program("score", "--json", "--output", f"{folder}/scores.safetensors",
                                 *(word for prompt in prompts for word in ("--prompt", prompt)))
        return [prompt["logprob"] for prompt in json.loads(told)["prompts"]]

    def choices_have_the_score_by_hand(self):
        docs = choice_docs()
        contexts = self._logprobs([doc["context"].rstrip() for doc in docs])
        wholes = self._logprobs([doc["context"] + choice for doc in docs for choice in doc["choices"]])
        right = 0
        for doc, (sample, context) in enumerate(zip(self.samples["tessera_choices"], contexts)):
            mine = [whole - context for whole in wholes[doc * len(OFFSETS):(doc + 1) * len(OFFSETS)]]
            theirs = [float(logprob) for logprob, _ in sample["filtered_resps"]]
            assert all(math.isclose(a, b, abs_tol=NEAR) for a, b in zip(mine, theirs, strict=True)), (doc, mine, theirs)
            right += max(mine) == mine[0]
        assert self.results["tessera_choices"] == right / len(docs), (right, self.results)
        assert right > len(docs) / 2, right  # the model has learnt the sums; guessing gives a quarter

    def answers_have_the_score_by_hand(self):
        docs = answer_docs()
        right = 0
        for doc, sample in zip(docs, self.samples["tessera_answers"], strict=True):
            told = json.loads(self._program("generate", "--json", "--prompt", doc["context"], "--temperature", "0",
                                            "--max-new-tokens", "16", "--disable-cuda-graph"))["text"]
            mine = told.split(".")[0]
            assert sample["filtered_resps"] == [mine], (mine, sample["filtered_resps"])
            right += mine == doc["answer"]
        assert self.results["tessera_answers"] == right / len(docs), (right, self.results)
        assert right > 0

    def texts_have_the_perplexity_by_hand(self):
        mine = self._logprobs(TEXTS)
        theirs = [sample["filtered_resps"][0] for sample in self.samples["tessera_texts"]]
        assert all(math.isclose(a, float(b), abs_tol=NEAR) for a, b in zip(mine, theirs, strict=True)), (mine, theirs)
        by_hand = math.exp(-sum(mine) / sum(len(text.encode()) for text in TEXTS))
        assert math.isclose(self.results["tessera_texts"], by_hand, rel_tol=1e-4), (by_hand, self.results)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    passed, failed = run_cases(Cases(*sys.argv[1:]))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
