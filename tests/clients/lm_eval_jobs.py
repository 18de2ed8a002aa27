"""lm-eval's completions client: generated texts."""

from jobs import API, KEY, NAME, check, main
from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI


def model():
    return LocalCompletionsAPI(model=NAME, base_url=API + "/completions", tokenizer_backend=None, tokenized_requests=False,
                               max_length=4096, num_concurrent=1, max_retries=1, header={"Authorization": f"Bearer {KEY}"})


def generate_until():
    asked = Instance("generate_until", {}, ("Once upon a time", {"until": ["\n"], "max_gen_toks": 8, "do_sample": False}), 0)
    check(model().generate_until([asked])[0])


main(generate_until)
