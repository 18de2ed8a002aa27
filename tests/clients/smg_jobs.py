"""smg: a gateway in front of two servers. It picks a server for each request, and writes the model's name into it."""

import time

from gateway import Gateway, servers
from jobs import MODEL, NAME, URL, ask, check, counted, main

HI = [{"role": "user", "content": "Hi"}]
TOOL = {"name": "look", "parameters": {"type": "object", "properties": {"where": {"type": "string"}}}}


def numbers(worker):
    """Returns the numbers in a server's own load report that do not change while the server is idle."""
    load = ask(worker + "/v1/loads")[1]["loads"][0]
    return {name: load[name] for name in ("num_running_reqs", "num_waiting_reqs", "max_total_num_tokens", "cache_hit_rate")}


def both(path, body):
    """Sends the request twice. Expects that each server gets it once (round_robin). Returns the second answer."""
    before = [counted(worker, "num_requests_total") for worker in gateway.workers]
    for _ in range(2):
        answer = gateway.expect(path, body)
    for _ in range(50):
        done = [counted(worker, "num_requests_total") - earlier for worker, earlier in zip(gateway.workers, before)]
        if done == [1, 1]:
            return answer
        time.sleep(0.1)
    raise AssertionError(f"{path}: the servers ended {done} requests")


def load_of_both_is_read():
    """The gateway reads the loads from the servers' own route, so it must have the same numbers."""
    wanted = {worker: numbers(worker) for worker in gateway.workers}
    for _ in range(60):
        seen = {load["worker"]: {name: load[name] for name in wanted[load["worker"]]}
                for load in gateway.expect("/get_loads")["loads"] if load["worker"] in wanted}
        if seen == wanted:
            return
        time.sleep(0.5)
    raise AssertionError(f"the servers have {wanted}, the gateway read {seen}")


def models():
    answer = gateway.expect("/v1/models")
    check(NAME in [model["id"] for model in answer["data"]], answer)


def health():
    gateway.expect("/health")
    gateway.expect("/health_generate")
    check(gateway.expect("/readiness")["healthy_workers"] == 2)


def info():
    check(gateway.expect("/get_model_info")["served_model_name"] == NAME)
    check(gateway.expect("/get_server_info")["max_total_num_tokens"] > 0)


def engine_metrics():
    text = gateway.expect("/engine_metrics")
    check(all(f'worker_addr="{worker}"' in text for worker in gateway.workers), text[:600])


def chat():
    answer = both("/v1/chat/completions", {"model": NAME, "messages": HI, "max_tokens": 4})
    check(answer["choices"][0]["message"]["role"] == "assistant" and answer["model"] == NAME, answer)


def chat_with_many_fields():
    answer = both("/v1/chat/completions", {
        "model": NAME, "messages": HI, "max_completion_tokens": 8, "tools": [{"type": "function", "function": TOOL}],
        "tool_choice": "auto", "parallel_tool_calls": True, "logprobs": True, "top_logprobs": 2, "seed": 3, "stop": ["zz"],
        "temperature": 0.3, "top_p": 0.9, "user": "me", "metadata": {"a": "b"}, "logit_bias": {"5": 1},
        "presence_penalty": 0.1, "frequency_penalty": 0.1, "store": False, "service_tier": "auto"})
    check(answer["choices"][0]["logprobs"]["content"], answer)


def chat_stream():
    text = both("/v1/chat/completions", {"model": NAME, "messages": HI, "max_tokens": 4, "stream": True,
                                         "stream_options": {"include_usage": True}})
    check(text.rstrip().endswith("data: [DONE]") and '"prompt_tokens"' in text, text)


def completion():
    answer = both("/v1/completions", {"model": NAME, "prompt": "Once", "max_tokens": 4})
    check(answer["usage"]["completion_tokens"] == 4, answer)


def completion_stream():
    text = both("/v1/completions", {"model": NAME, "prompt": "Once", "max_tokens": 4, "stream": True})
    check(text.rstrip().endswith("data: [DONE]"), text)


def generate_without_a_model():
    answer = both("/generate", {"text": "Once", "sampling_params": {"max_new_tokens": 4}})
    check(answer["meta_info"]["completion_tokens"] == 4, answer)


def generate_of_a_model():
    answer = both("/generate", {"model": NAME, "text": "Once", "sampling_params": {"max_new_tokens": 4}})
    check(answer["meta_info"]["completion_tokens"] == 4, answer)


def generate_stream():
    text = both("/generate", {"input_ids": [5, 6, 7], "stream": True, "return_logprob": True,
                              "sampling_params": {"max_new_tokens": 4}})
    check(text.rstrip().endswith("data: [DONE]") and "output_token_logprobs" in text, text)


def message():
    answer = both("/v1/messages", {"model": NAME, "messages": HI, "max_tokens": 4})
    check(answer["type"] == "message" and answer["usage"]["output_tokens"] == 4, answer)


def message_stream():
    text = both("/v1/messages", {"model": NAME, "messages": HI, "max_tokens": 4, "stream": True, "system": "Be kind.",
                                 "tools": [{"name": TOOL["name"], "input_schema": TOOL["parameters"]}]})
    check("event: message_stop" in text, text)


def count_tokens():
    check(gateway.expect("/v1/messages/count_tokens", {"model": NAME, "messages": HI})["input_tokens"] > 0)


def response():
    answer = both("/v1/responses", {"model": NAME, "input": "Hi", "max_output_tokens": 16})
    check(answer["object"] == "response" and answer["output"], answer)


def response_stream():
    text = both("/v1/responses", {"model": NAME, "input": HI, "max_output_tokens": 16, "stream": True})
    check("event: response.completed" in text or "event: response.incomplete" in text, text)


def responses_go_on_where_they_are_stored():
    """A server keeps its own responses, so the gateway must send all requests of a session to one server."""
    with Gateway(gateway.workers, "consistent_hashing") as keyed:
        for session in range(6):
            headers = {"X-SMG-Routing-Key": f"session {session}"}
            first = keyed.expect("/v1/responses", {"model": NAME, "input": "Hi", "max_output_tokens": 16}, headers)
            keyed.expect("/v1/responses", {"model": NAME, "input": "And then?", "max_output_tokens": 16,
                                           "previous_response_id": first["id"]}, headers)


def tokens():
    """The gateway tokenises by itself, so its ids must equal the server's."""
    status, answer = gateway.ask("/v1/tokenizers", {"name": NAME, "source": str(MODEL)})
    check(status == 202, answer)
    for _ in range(60):
        if gateway.expect("/v1/tokenizers")["tokenizers"]:
            break
        time.sleep(0.5)
    text = {"model": NAME, "prompt": "The little fox"}
    ids = ask(URL + "/tokenize", text)[1]["tokens"]
    check(gateway.expect("/v1/tokenize", text)["tokens"] == ids, ids)
    check(gateway.expect("/v1/detokenize", {"model": NAME, "tokens": ids})["text"] == text["prompt"])


def flush():
    check(gateway.expect("/flush_cache", {})["workers_flushed"] == 2)


with servers(1) as second, Gateway([URL, *second], "round_robin") as gateway:
    main(models, health, info, engine_metrics, chat, chat_with_many_fields, chat_stream, completion, completion_stream,
         generate_without_a_model, generate_of_a_model, generate_stream, message, message_stream, count_tokens, response,
         response_stream, load_of_both_is_read, responses_go_on_where_they_are_stored, tokens, flush)
