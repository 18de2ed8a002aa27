#!/usr/bin/env python3
"""Subscribes to KV cache events and loads as a gateway does: tests/server/kv_events_test.py TESSERA BUILD_FOLDER

Catches: messages that pyzmq or msgspec with vLLM's types cannot read, an index of the events that differs from the
server's cache, lost batches that cannot be replayed, loads that differ from SGLang's form or from what was computed, and
wrong settings that are found only after the model is loaded.

The packages are installed from PyPI at the versions of kv_events_requirements.txt, into BUILD_FOLDER/kv-events-client.
If they cannot be installed, only the settings are tested. The last line is "N passed, N failed"."""

import json
import pathlib
import re
import socket
import subprocess
import sys

from served import MODEL, Served, run_cases

REQUIREMENTS = pathlib.Path(__file__).with_name("kv_events_requirements.txt")
TOPIC = "kv@pod-1@demo"
BLOCK = 16
END = (2**64 - 1).to_bytes(8, "big")


def import_client(build):
    """Returns None, or the reason why the packages are missing."""
    home = pathlib.Path(build) / "kv-events-client"
    try:
        if not home.exists():
            subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
                            "--require-hashes", "--target", str(home), "-r", str(REQUIREMENTS)],
                           check=True, capture_output=True, timeout=180)
        sys.path.insert(0, str(home))
        import msgspec  # noqa: F401
        import zmq  # noqa: F401
        return None
    except (ImportError, OSError, subprocess.SubprocessError) as error:
        reason = getattr(error, "stderr", b"") or str(error).encode()
        return (reason.decode(errors="replace").strip().splitlines() or ["no reason is given"])[-1]


def free_ports(count):
    """Returns the first of successive ports that are free now."""
    for first in range(21000, 60000, 97):
        sockets = [socket.socket() for _ in range(count)]
        try:
            for i, one in enumerate(sockets):
                one.bind(("127.0.0.1", first + i))
            return first
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
    raise RuntimeError("no free ports")


def config(port, replay_port, **more):
    return json.dumps({"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": f"tcp://127.0.0.1:{port}", "bind": True,
                       "replay_endpoint": f"tcp://127.0.0.1:{replay_port}", "topic": TOPIC, **more})


def decoder():
    """Returns a decoder of batches with the types of vLLM, which it also publishes in an example for subscribers."""
    import msgspec

    class EventBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
        ts: float
        events: list
        data_parallel_rank: int | None = None

    class KVCacheEvent(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
        pass

    class BlockStored(KVCacheEvent, forbid_unknown_fields=True):
        block_hashes: list[int]
        parent_block_hash: int | None
        token_ids: list[int]
        block_size: int
        lora_id: int | None
        medium: str | None
        lora_name: str | None
        extra_keys: list | None = None

    class BlockRemoved(KVCacheEvent, forbid_unknown_fields=True):
        block_hashes: list[int]
        medium: str | None

    class AllBlocksCleared(KVCacheEvent, forbid_unknown_fields=True):
        pass

    class KVEventBatch(EventBatch):
        events: list[BlockStored | BlockRemoved | AllBlocksCleared]

    return msgspec.msgpack.Decoder(KVEventBatch)


def load_decoder():
    """Returns a decoder of loads with the type of SGLang 0.5.23 (managers/scheduler_components/load_publisher.py)."""
    import msgspec

    class LoadStat(msgspec.Struct, array_like=True, gc=False, tag=True, forbid_unknown_fields=True):
        num_running_reqs: int
        num_waiting_reqs: int
        num_tokens: int
        max_total_num_tokens: int
        attn_dp_rank: int | None
        num_waiting_uncached_tokens: int
        num_total_tokens: int
        max_running_requests: int
        total_prefill_uncached_tokens: int
        total_prefill_busy_us: int

    return msgspec.msgpack.Decoder(LoadStat)


class LoadSubscriber:
    """Follows the loads of one engine."""

    def __init__(self, port):
        import zmq
        self.context = zmq.Context()
        self.loads = self.context.socket(zmq.SUB)
        self.loads.connect(f"tcp://127.0.0.1:{port}")
        self.loads.setsockopt(zmq.SUBSCRIBE, b"load")
        self.decoder = load_decoder()
        self.number = None

    def close(self):
        self.context.destroy(linger=0)

    def until(self, wanted):
        """Returns the first load for which `wanted` holds."""
        while True:
            assert self.loads.poll(10000), "no load comes"
            topic, number, message = self.loads.recv_multipart()
            assert topic == b"load", topic
            next_number = int.from_bytes(number, "big")
            assert len(number) == 8 and (self.number is None or next_number == self.number + 1), (self.number, number)
            self.number = next_number
            load = self.decoder.decode(message)
            if wanted(load):
                return load


class Subscriber:
    """Follows the events of one engine, and asks for what it has missed."""

    def __init__(self, port, replay_port):
        import zmq
        self.context = zmq.Context()
        self.events = self.context.socket(zmq.SUB)
        self.events.connect(f"tcp://127.0.0.1:{port}")
        self.events.setsockopt(zmq.SUBSCRIBE, TOPIC.encode())
        self.replays = self.context.socket(zmq.DEALER)
        self.replays.connect(f"tcp://127.0.0.1:{replay_port}")
        self.decoder = decoder()
        self.blocks = {}  # each block's tokens, those of its ancestors included
        self.batches = {}  # all batches by number

    def close(self):
        self.context.destroy(linger=0)

    def _take(self, topic, number, message):
        assert topic == TOPIC.encode(), topic
        self.batches[int.from_bytes(number, "big")] = self.decoder.decode(message)

    def live(self, wait_ms=500):
        """Takes batches until none comes for a while; returns how many came."""
        count = 0
        while self.events.poll(wait_ms):
            self._take(*self.events.recv_multipart())
            count += 1
        return count

    def replay(self, first):
        self.replays.send_multipart([b"", first.to_bytes(8, "big")])
        while True:
            assert self.replays.poll(10000), "the replay does not end"
            empty, topic, number, message = self.replays.recv_multipart()
            assert empty == b"", empty
            if number == END:
                return
            self._take(topic, number, message)

    def index(self):
        """Rebuilds the cache's content from all batches."""
        assert sorted(self.batches) == list(range(len(self.batches))), sorted(self.batches)
        blocks = {}
        for _, batch in sorted(self.batches.items()):
            assert batch.ts > 1.7e9, batch
            for event in batch.events:
                kind = type(event).__name__
                if kind == "AllBlocksCleared":
                    blocks.clear()
                elif kind == "BlockRemoved":
                    for block in event.block_hashes:
                        del blocks[block]
                else:
                    assert event.block_size == BLOCK and event.medium == "GPU", event
                    assert len(event.token_ids) == BLOCK * len(event.block_hashes), event
                    text = [] if event.parent_block_hash is None else blocks[event.parent_block_hash]
                    for i, block in enumerate(event.block_hashes):
                        text = text + event.token_ids[BLOCK * i:BLOCK * (i + 1)]
                        assert block not in blocks, event
                        blocks[block] = text
        return blocks


def ids(first, count):
    return [10 + (first + 7 * i) % 200 for i in range(count)]


class Cases:
    def __init__(self, tessera):
        self.tessera = tessera

    def _generate(self, server, prompt):
        status, answer = server.post("/generate", {"input_ids": prompt, "sampling_params": {"max_new_tokens": 1}})
        assert status == 200, answer
        return answer["meta_info"]["cached_tokens"]

    def an_index_of_events_knows_what_is_cached(self):
        port = free_ports(2)
        flags = ["--kv-events-config", config(port, port + 1), "--page-size", str(BLOCK), "--max-total-tokens", "640"]
        with Served(self.tessera, flags) as server:
            subscriber = Subscriber(port, port + 1)
            prompts = [ids(31 * n, 80 + 16 * (n % 3)) for n in range(12)]
            for prompt in prompts:
                self._generate(server, prompt)
            subscriber.live()
            subscriber.replay(0)  # what was published before the subscription took effect
            blocks = subscriber.index()
            kinds = [type(event).__name__ for batch in subscriber.batches.values() for event in batch.events]
            assert "BlockRemoved" in kinds, "the cache is too large to be evicted from"
            assert all(batch.data_parallel_rank == 0 for batch in subscriber.batches.values())
            texts = {tuple(text) for text in blocks.values()}
            for prompt in reversed(prompts):
                known = max((n for n in range(BLOCK, len(prompt), BLOCK) if tuple(prompt[:n]) in texts), default=0)
                cached = self._generate(server, prompt)
                assert cached == known, (cached, known)
                break  # a request changes the cache
            server.request("POST", "/flush_cache")
            subscriber.live()
            subscriber.replay(0)
            assert subscriber.index() == {}
            assert json.loads(server.get("/server_info")[1])["kv_events"] == {
                "publisher": "zmq", "endpoint_host": "127.0.0.1", "endpoint_port_base": port, "topic": TOPIC, "block_size": BLOCK,
                "dp_size": 1, "replay_endpoint_port_base": port + 1}
            assert re.search(r'^tessera:kv_event_batches_total\{outcome="dropped"\} 0$', server.get("/metrics")[1], re.MULTILINE)
            subscriber.close()

    def equal_prompts_have_equal_ids_on_two_engines(self):
        port = free_ports(4)
        flags = ["--kv-events-config", config(port, port + 2), "--page-size", str(BLOCK), "--dp-size", "2"]
        with Served(self.tessera, flags) as server:
            seen = []
            for rank in range(2):
                subscriber = Subscriber(port + rank, port + 2 + rank)
                subscriber.replay(0)
                assert [batch.data_parallel_rank for batch in subscriber.batches.values()] == [rank]
                seen.append(subscriber)
            prompt = ids(3, 64)
            self._generate(server, prompt)
            for subscriber in seen:
                subscriber.replay(0)
                subscriber.close()
            first = [set(subscriber.index()) for subscriber in seen]
            assert sorted(map(len, first)) == [0, 4], first
        with Served(self.tessera, flags[:-2]) as server:
            self._generate(server, prompt)
            subscriber = Subscriber(port, port + 2)
            subscriber.replay(0)
            assert set(subscriber.index()) == first[0] | first[1]
            subscriber.close()

    def loads_are_published_as_sglang_does(self):
        port = free_ports(6)  # two each for events, replays and loads
        flags = ["--kv-events-config", config(port, port + 2), "--load-publish-endpoint", "auto", "--dp-size", "2",
                 "--page-size", str(BLOCK), "--max-total-tokens", "640", "--max-running-requests", "6"]
        with Served(self.tessera, flags) as server:
            described = json.loads(server.get("/server_info")[1])["kv_events"]
            assert described["load_endpoint_port_base"] == port + 4 and described["load_topic"] == "load", described
            subscribers = [LoadSubscriber(port + 4 + rank) for rank in range(2)]
            idle = [subscriber.until(lambda load: True) for subscriber in subscribers]
            for rank, load in enumerate(idle):
                assert (load.num_running_reqs, load.num_waiting_reqs, load.num_tokens) == (0, 0, 0), load
                assert (load.attn_dp_rank, load.max_running_requests) == (rank, 6), load
                assert load.total_prefill_uncached_tokens == 0 and load.total_prefill_busy_us == 0, load
            listed = json.loads(server.get("/v1/loads")[1])["loads"]
            assert [load.max_total_num_tokens for load in idle] == [one["max_total_num_tokens"] for one in listed]
            self._generate(server, ids(3, 70))
            prompts = [0, 0]
            while sum(prompts) == 0:  # the first loads may be those before the request
                prompts = [subscriber.until(lambda load: load.num_running_reqs == 0).total_prefill_uncached_tokens
                           for subscriber in subscribers]
            assert sorted(prompts) == [0, 70], prompts
            busy = subscribers[prompts.index(70)].until(lambda load: True)
            assert 0 < busy.total_prefill_busy_us < 60e6, busy
            self._generate(server, ids(3, 70))  # 64 of them are cached
            assert subscribers[prompts.index(70)].until(
                lambda load: load.total_prefill_uncached_tokens != 70).total_prefill_uncached_tokens == 76
            for subscriber in subscribers:
                subscriber.close()

    def _refused(self, *flags):
        command = [self.tessera, "serve", "--model-path", str(MODEL), "--port", "0", *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode != 0, done
        assert "eading" not in done.stderr and "Ready" not in done.stderr, done.stderr
        return done.stderr

    def wrong_settings_are_refused_before_the_model_is_loaded(self):
        said = self._refused("--kv-events-config", '{"publisher": "zmq", "port": 5557}')
        assert '--kv-events-config: unknown key "port"' in said and "replay_endpoint" in said, said
        said = self._refused("--kv-events-config", '{"publisher": "zmq", "hwm": "many"}')
        assert '"hwm": "many" is not accepted; accepted: integers from 1' in said, said
        said = self._refused("--kv-events-config", '{"publisher": "zmq"}', "--disable-radix-cache")
        assert "--disable-radix-cache" in said, said

    def an_address_in_use_is_named_before_the_model_is_loaded(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            free = free_ports(1)
            said = self._refused("--kv-events-config", config(port, free))
            assert f'"endpoint": cannot listen at tcp://127.0.0.1:{port}: Address already in use' in said, said
            said = self._refused("--kv-events-config", config(free, port))
            assert f'"replay_endpoint": cannot listen at tcp://127.0.0.1:{port}: Address already in use' in said, said

    def wrong_load_endpoints_are_refused_before_the_model_is_loaded(self):
        said = self._refused("--load-publish-endpoint", "auto")
        assert "--load-publish-endpoint: gateways learn the port" in said and "--kv-events-config" in said, said
        said = self._refused("--load-publish-endpoint", "on", "--kv-events-config", '{"publisher": "zmq"}')
        assert '--load-publish-endpoint: "on" is not accepted; accepted: off, auto and tcp://HOST:PORT' in said, said
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port, free = other.getsockname()[1], free_ports(2)
            said = self._refused("--load-publish-endpoint", f"tcp://127.0.0.1:{port}", "--kv-events-config", config(free, free + 1))
            assert f"--load-publish-endpoint: cannot listen at tcp://127.0.0.1:{port}: Address already in use" in said, said

    def other_commands_say_where_the_flag_belongs(self):
        done = subprocess.run([self.tessera, "generate", "--kv-events-config", "{}"], capture_output=True, text=True, timeout=60,
                              check=False)
        assert done.returncode != 0 and "serve publishes them" in done.stderr, done.stderr

    def without_the_flag_there_is_nothing(self):
        with Served(self.tessera) as server:
            assert "kv_event" not in server.get("/metrics")[1] + server.get("/server_info")[1]


WITH_CLIENT = ["an_index_of_events_knows_what_is_cached", "equal_prompts_have_equal_ids_on_two_engines",
               "loads_are_published_as_sglang_does"]


if __name__ == "__main__":
    missing = import_client(sys.argv[2])
    if missing is not None:
        for case in WITH_CLIENT:
            print(f"skipped: {case} pyzmq and msgspec cannot be installed: {missing}")
    passed, failed = run_cases(Cases(sys.argv[1]), skipped=() if missing is None else WITH_CLIENT)
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)
