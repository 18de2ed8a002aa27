"""smg with the policy cache_aware: growing conversations in front of two servers, and at one server."""

import concurrent.futures
import random

from gateway import Gateway, servers
from jobs import NAME, ask, check, counted, main

SESSIONS = 16
TURNS = 8
WORDS = "the a fox dog house tree river small big old runs sees likes finds makes goes cat bird story time day".split()
LEAST_SHARE = 0.95  # two servers must reach this share of one server's hit rate
LEAST_REQUESTS = SESSIONS  # each server must answer at least this many requests


def words(count, seed):
    return " ".join(random.Random(seed).choices(WORDS, k=count))


def converse(url, session):
    """Returns the prompts' tokens and those found in the cache, summed over the turns of one conversation."""
    messages = [{"role": "system", "content": words(400, "system")}]
    seen = cached = 0
    for turn in range(TURNS):
        messages.append({"role": "user", "content": words(60, f"{session} {turn}")})
        status, answer = ask(url + "/v1/chat/completions",
                             {"model": NAME, "messages": messages, "max_tokens": 32, "temperature": 0})
        check(status == 200, f"{status}: {answer}")
        messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
        seen += answer["usage"]["prompt_tokens"]
        cached += answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return seen, cached


def hit_rate(url):
    with concurrent.futures.ThreadPoolExecutor(SESSIONS) as at_once:
        seen, cached = map(sum, zip(*at_once.map(lambda session: converse(url, session), range(SESSIONS))))
    return cached / seen


def hit_rate_is_that_of_one_server():
    with servers(1) as (url,):
        one = hit_rate(url)
    with servers(2) as urls, Gateway(urls, "cache_aware") as gateway:
        two = hit_rate(gateway.url)
        done = [counted(url, "num_requests_total") for url in urls]
    check(two >= LEAST_SHARE * one, f"{two:.4f} of the prompts' tokens were found, one server finds {one:.4f}")
    check(min(done) >= LEAST_REQUESTS, f"the servers answered {done} requests")
    return f"{two:.4f} of one server's {one:.4f}, with {done[0]} and {done[1]} requests"


main(hit_rate_is_that_of_one_server)
