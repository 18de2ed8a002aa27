"""A model for EleutherAI's lm-evaluation-harness that runs in this process.

    import lm_eval
    from tessera_engine.lm_eval import TesseraLM
    lm_eval.simple_evaluate(TesseraLM("models/demo"), tasks=["hellaswag"])

If the harness is not installed, the class works too, with `object` as its base. A request is then any object with the
member `args` of the harness's requests."""

from __future__ import annotations

import importlib
from typing import Any, Iterable, Protocol, Sequence

from .engine import Engine


def _base() -> Any:
    try:
        return importlib.import_module("lm_eval.api.model").LM
    except ImportError:
        return object


_Base = _base()


class Instance(Protocol):
    @property
    def args(self) -> Any: ...


class TesseraLM(_Base):  # type: ignore[misc, valid-type]  # the base is known at run time only
    """A model for the harness. `batch` is the number of requests that the engine gets at once. `options` are those of
    Engine."""

    def __init__(self, model_path: str, batch: int = 256, max_gen_toks: int = 256, **options: Any) -> None:
        super().__init__()
        self.engine = Engine(model_path, **options)
        self._batch = batch
        self._max_gen_toks = max_gen_toks
        self._context: int = self.engine.get_server_info()["engine"]["max_request_tokens"]

    def loglikelihood(self, requests: Sequence[Instance]) -> list[tuple[float, bool]]:
        """Returns, for each continuation after its context, its log-probability and whether greedy decoding would give it."""
        return self._score([self._tokens(*request.args) for request in requests])

    def loglikelihood_rolling(self, requests: Sequence[Instance]) -> list[float]:
        """Returns the log-probability of each whole text. Long texts are divided into windows of the model's context, in
        which each token is predicted once. The first token is predicted from the token that begins texts. If the model
        has no such token, the first one counts as certain."""
        rows, owners = [], []
        for owner, request in enumerate(requests):
            ids = self.engine.tokenize(request.args[0])
            step = self._context - 2
            for start in range(1, len(ids), step):
                end = min(start + step, len(ids))
                rows.append((ids[max(0, end - self._context + 1):start], ids[start:end]))
                owners.append(owner)
        sums = [0.0] * len(requests)
        for owner, (logprob, _) in zip(owners, self._score(rows)):
            sums[owner] += logprob
        return sums

    def generate_until(self, requests: Sequence[Instance]) -> list[str]:
        """Returns the generated text after each context, up to the first of its stop texts."""
        texts: list[str] = []
        for part in self._parts(list(requests)):
            contexts = [request.args[0] for request in part]
            params = [self._sampling(request.args[1]) for request in part]
            texts += [answer["text"] for answer in self.engine.generate(contexts, params)]
        return texts

    def _sampling(self, given: dict[str, Any]) -> dict[str, Any]:
        until = given.get("until") or []
        sampled = bool(given.get("do_sample", False))
        params: dict[str, Any] = {
            "stop": [until] if isinstance(until, str) else list(until),
            "max_new_tokens": given.get("max_gen_toks", self._max_gen_toks),
            "temperature": float(given.get("temperature", 1.0)) if sampled else 0.0,
        }
        if sampled and "top_p" in given:
            params["top_p"] = given["top_p"]
        return params

    def _tokens(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        # Moves blanks at the end of the context to the continuation, like the harness.
        blanks = len(context) - len(context.rstrip())
        if blanks:
            context, continuation = context[:-blanks], context[-blanks:] + continuation
        whole = self.engine.tokenize(context + continuation)
        before = len(self.engine.tokenize(context))
        if before == 0:
            before = 1  # nothing comes before the first token, which cannot be predicted
        return whole[:before], whole[before:]

    def _score(self, rows: list[tuple[list[int], list[int]]]) -> list[tuple[float, bool]]:
        scores: list[tuple[float, bool]] = []
        for part in self._parts(rows):
            # Keeps the last tokens that fit in the context together with one generated token.
            prompts = [(before + after)[-(self._context - 1):] for before, after in part]
            starts = [max(len(prompt) - len(after) - 1, 0) for prompt, (_, after) in zip(prompts, part)]
            answers = self.engine.generate(
                input_ids=prompts, sampling_params={"max_new_tokens": 1, "temperature": 0, "ignore_eos": True},
                return_logprob=True, logprob_start_len=starts, top_logprobs_num=1)
            for answer, (_, after) in zip(answers, part):
                meta = answer["meta_info"]
                known = meta["input_token_logprobs"][-len(after):] if after else []
                best = meta["input_top_logprobs"][-len(after):] if after else []
                greedy = all(top is not None and top[0][1] == token[1] for token, top in zip(known, best))
                scores.append((float(sum(token[0] for token in known if token[0] is not None)), greedy))
        return scores

    def _parts(self, items: list[Any]) -> Iterable[list[Any]]:
        return (items[i:i + self._batch] for i in range(0, len(items), self._batch))

    def shutdown(self) -> None:
        self.engine.shutdown()
