#!/usr/bin/env python3
"""The tessera command: chat, and generate with a file of requests. tests/cli/cli_chat_test.py PROGRAM [TEST …]

Catches: requests that get another request's answer or none, a forgotten conversation, and an ignored signal.
Prints a line for each test; the last line is "N passed, N failed"."""

import json
import os
import signal
import subprocess

from program import DEMO, FEW_SIZES, LLAMA, PROGRAM, CliTest, main, tessera


class Batch(CliTest):
    def answers(self, lines, *more, exit_code=0):
        """Returns the answers to `lines` from the output file, and the only object on standard output."""
        requests, out = self.folder / "requests.jsonl", self.folder / "out.jsonl"
        requests.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
        result = tessera("generate", "--model-path", DEMO, "--input-file", requests, "--output-file", out, "--json",
                         *FEW_SIZES, *more)
        self.assertEqual(result.returncode, exit_code, result.stderr)
        return [json.loads(line) for line in out.read_text().splitlines()], json.loads(result.stdout)

    def test_answers_come_in_order(self):
        lines = [{"custom_id": f"r{i}", "method": "POST", "url": "/v1/completions",
                  "body": {"prompt": f"Fox number {i}", "max_tokens": 40 - 3 * i, "temperature": 0, "ignore_eos": True}}
                 for i in range(12)]
        lines.append({"custom_id": "chat", "method": "POST", "url": "/v1/chat/completions",
                      "body": {"model": "demo", "messages": [{"role": "user", "content": "Tell me about foxes."}],
                               "max_tokens": 9}})
        lines.append({"prompt": "Once upon a time", "max_tokens": 3, "n": 2})
        answers, totals = self.answers(lines, "--served-model-name", "demo")
        self.assertEqual([answer["custom_id"] for answer in answers], [f"r{i}" for i in range(12)] + ["chat", None])
        self.assertEqual(len({answer["id"] for answer in answers}), len(lines))
        for answer in answers:
            self.assertEqual(set(answer), {"id", "custom_id", "response", "error"})
            self.assertIsNone(answer["error"])
            self.assertEqual(answer["response"]["status_code"], 200)
            self.assertEqual(answer["response"]["request_id"], answer["response"]["body"]["id"])
        bodies = [answer["response"]["body"] for answer in answers]
        self.assertEqual([body["usage"]["completion_tokens"] for body in bodies[:12]], [40 - 3 * i for i in range(12)])
        self.assertEqual(bodies[12]["object"], "chat.completion")
        self.assertEqual(len(bodies[13]["choices"]), 2)
        self.assertEqual((totals["requests"], totals["failed"]), (14, 0))
        self.assertEqual(totals["completion_tokens"], sum(body["usage"]["completion_tokens"] for body in bodies))
        alone = self.ok("generate", "--model-path", DEMO, "--prompt", "Fox number 0", "--max-new-tokens", 40,
                        "--ignore-eos", *FEW_SIZES).stdout
        self.assertEqual(bodies[0]["choices"][0]["text"], alone.removesuffix("\n"))

    def test_embeddings_come_in_order(self):
        texts = [f"Fox number {i}" for i in range(1100)]
        lines = [{"input": text} for text in texts[:20]]
        lines.append({"custom_id": "many", "method": "POST", "url": "/v1/embeddings", "body": {"input": texts[:3], "dimensions": 8}})
        lines += [{"prompt": "Once"}, {"input": texts}]
        answers, totals = self.answers(lines, "--is-embedding", exit_code=1)
        statuses = [answer["response"]["status_code"] for answer in answers]
        self.assertEqual(statuses, [200] * 21 + [400, 400])
        bodies = [answer["response"]["body"] for answer in answers]
        vectors = [body["data"][0]["embedding"] for body in bodies[:20]]
        self.assertEqual(len({str(vector) for vector in vectors}), 20)
        self.assertEqual([len(entry["embedding"]) for entry in bodies[20]["data"]], [8] * 3)
        self.assertIn("embedding", bodies[21]["error"]["message"])
        self.assertIn("1100 prompts", bodies[22]["error"]["message"])
        self.assertEqual((totals["requests"], totals["failed"], totals["completion_tokens"]), (23, 2, 0))

    def test_bad_lines_stop_nothing(self):
        good = {"prompt": "Once", "max_tokens": 2}
        lines = ["{\n", "\n", {"custom_id": "a", "url": "/v1/rerank", "body": {}}, good,
                 {"prompt": "Once", "temperature": -1}, {"prompt": "Once", "stream": True},
                 {"custom_id": "b", "model": "other", "prompt": "x"}, {"prompt": [99999]}, good]
        answers, totals = self.answers(lines, exit_code=1)
        self.assertEqual([answer["response"] and answer["response"]["status_code"] for answer in answers],
                         [None, None, 200, 400, 400, 404, 400, 200])
        self.assertEqual((totals["requests"], totals["failed"]), (8, 6))
        self.assertIn("/v1/chat/completions", answers[1]["error"]["message"])
        self.assertEqual(answers[1]["custom_id"], "a")
        for answer, word in zip(answers[3:7], ("temperature", "stream", "other", "99999")):
            self.assertIn(word, answer["response"]["body"]["error"]["message"])

    def test_more_bad_lines_than_the_window_holds(self):
        answers, totals = self.answers(["{\n"] * 1200 + [{"prompt": "Once", "max_tokens": 2}], exit_code=1)
        self.assertEqual((len(answers), totals["failed"]), (1201, 1200))
        self.assertEqual(answers[-1]["response"]["status_code"], 200)

    def test_more_requests_than_the_window_holds(self):
        answers, _ = self.answers([{"prompt": [i % 100], "max_tokens": 1, "custom_id": str(i)} for i in range(1500)])
        self.assertEqual([answer["custom_id"] for answer in answers], [str(i) for i in range(1500)])

    def test_files(self):
        arguments = ["generate", "--model-path", DEMO]
        self.fails(1, ["/no/such/file"], *arguments, "--input-file", "/no/such/file", "--output-file", "x")
        empty = self.folder / "empty"
        empty.write_text("\n")
        self.fails(1, ["no requests"], *arguments, "--input-file", empty, "--output-file", self.folder / "x")
        full = self.folder / "full"
        full.write_text("{}\n")
        self.fails(2, ["--output-file", "overwrite"], *arguments, "--input-file", full, "--output-file", full)
        self.assertEqual(full.read_text(), "{}\n")
        self.fails(2, ["--output-file", "cannot be written"], *arguments, "--input-file", full, "--output-file",
                   self.folder / "no" / "x")


class Chat(CliTest):
    QUESTION = "Tell me about foxes."

    def chat(self, lines, *more, model=DEMO):
        command = [str(PROGRAM), "chat", "--model-path", str(model), *FEW_SIZES, *map(str, more)]
        return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False,
                              input="".join(line + "\n" for line in lines))

    def answers(self, lines, *more):
        result = self.chat(lines, *more)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def test_first_answer_is_that_of_generate(self):
        alone = self.ok("generate", "--model-path", DEMO, "--chat", "--prompt", self.QUESTION, *FEW_SIZES).stdout
        self.assertEqual(self.answers([self.QUESTION], "--temperature", 0), alone)
        self.assertEqual(self.answers([self.QUESTION], "--temperature", 0, "--stop", alone[10:14]), alone[:10] + "\n")

    def test_history(self):
        # Random numbers depend on the position, so the answer depends on the length of the history.
        drawn = ["--temperature", 1.5, "--seed", 3, "--max-new-tokens", 12]
        once = self.answers([self.QUESTION], *drawn)
        self.assertNotEqual(self.answers([self.QUESTION, self.QUESTION], *drawn), 2 * once)
        self.assertEqual(self.answers([self.QUESTION, "", "/reset", self.QUESTION], *drawn), 2 * once)
        self.assertEqual(self.answers([self.QUESTION, "/exit", self.QUESTION], *drawn), once)

    def test_system_message(self):
        drawn = ["--temperature", 1.5, "--seed", 3, "--max-new-tokens", 12]
        system = "You speak of the sea."
        plain = self.answers([self.QUESTION], *drawn)
        given = self.answers([self.QUESTION], *drawn, "--system", system)
        self.assertNotEqual(plain, given)
        self.assertEqual(self.answers(["/system " + system, self.QUESTION], *drawn), given)
        self.assertEqual(self.answers([self.QUESTION, "/reset", self.QUESTION], *drawn, "--system", system), 2 * given)
        self.assertEqual(self.answers(["/system", self.QUESTION], *drawn, "--system", system), plain)

    def test_errors(self):
        result = self.chat(["Tell me about foxes.", "word " * 400], "--context-length", 256, "--max-new-tokens", 9)
        self.assertEqual(result.returncode, 1)
        self.assertEqual(len(result.stdout.splitlines()), 1)
        for words in ("too long", "256", "/reset"):
            self.assertIn(words, result.stderr)
        result = self.chat(["/rest"])
        self.assertEqual(result.returncode, 1)
        self.assertIn("\"/rest\" is no command; accepted are /reset", result.stderr)
        self.fails(1, ["tokenizer"], "chat", "--model-path", LLAMA, *FEW_SIZES)

    def reasoning_model(self):
        """Makes a copy of the bundled model with a template that opens its reasoning, which the model never closes."""
        folder = self.folder / "thinker"
        folder.mkdir()
        for file in DEMO.iterdir():
            (folder / file.name).symlink_to(file)
        (folder / "chat_template.jinja").unlink(missing_ok=True)
        (folder / "chat_template.jinja").write_text(
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] }}<|im_end|>\n"
            "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}")
        return folder

    def test_reasoning_is_for_terminals(self):
        self.assertEqual(self.chat([self.QUESTION], "--max-new-tokens", 9, model=self.reasoning_model()).stdout, "\n")

    def terminal(self, model, *more):
        """Starts the program on a terminal; returns it, the terminal to type at, and a function that reads until it has seen
        some words."""
        controller, terminal = os.openpty()
        chat = subprocess.Popen([str(PROGRAM), "chat", "--model-path", str(model), *FEW_SIZES, *map(str, more)],
                                stdin=terminal, stdout=terminal, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(terminal)
        self.addCleanup(os.close, controller)
        self.addCleanup(chat.wait)
        self.addCleanup(chat.kill)
        seen = ""

        def read_until(words):
            nonlocal seen
            while words not in seen:
                seen += os.read(controller, 65536).decode(errors="replace")
            before, seen = seen.split(words, 1)
            return before

        return chat, controller, read_until

    def test_quit(self):
        for end in ("/quit", "/exit ", "/quit\r"):
            self.assertEqual(self.answers([self.QUESTION, end, self.QUESTION], "--max-new-tokens", 5),
                             self.answers([self.QUESTION], "--max-new-tokens", 5))

    def type_lines(self, history, lines, *more):
        """Types at a chat and ends it; returns all that the terminal showed."""
        os.environ["TESSERA_HISTORY"] = str(history)
        self.addCleanup(os.environ.__setitem__, "TESSERA_HISTORY", "")
        chat, controller, read_until = self.terminal(DEMO, "--max-new-tokens", 2, *more)
        seen = read_until("> ")
        for line in lines:
            os.write(controller, line.encode() + b"\n")
            seen += read_until("\r\n> " if line != "/quit" else "/quit\r\n")
        self.assertEqual(chat.wait(60), 0)
        return seen

    def test_lines_are_edited_and_kept(self):
        history = self.folder / "state" / "history"
        # Moves the cursor one to the left, inserts a letter, and moves the cursor to the end of the line.
        self.type_lines(history, ["/rest\x1b[De\x05", "/quit"])
        self.assertIn("/reset\n", history.read_text())
        self.assertEqual(history.stat().st_mode & 0o777, 0o600)
        # The arrow keys bring back the second-last line of the previous run.
        self.assertIn("/reset", self.type_lines(history, ["\x1b[A\x1b[A", "/quit"]))
        before = history.read_text()
        self.type_lines(history, ["/system x", "/quit"], "--no-history")
        self.assertEqual(history.read_text(), before)
        self.assertEqual(len(self.chat(["/system y"]).stdout), 0)
        self.assertEqual(history.read_text(), before, "lines of a pipe are not kept")

    def test_a_history_of_any_name(self):
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        self.type_lines("in_this_folder", ["/reset", "/quit"])
        self.assertIn("/reset\n", (self.folder / "in_this_folder").read_text())
        empty = self.folder / "empty"
        empty.touch()
        self.type_lines(empty, ["/reset", "/quit"])
        self.assertIn("/reset\n", empty.read_text())
        # If no history can be kept, a chat works without one and leaves other files alone.
        self.type_lines(self.folder / ("n" * 300), ["/reset", "/quit"])
        notes = self.folder / "notes"
        notes.write_text("of the user\n")
        notes.chmod(0o644)
        self.type_lines(notes, ["/reset", "/quit"])
        self.assertEqual((notes.read_text(), notes.stat().st_mode & 0o777), ("of the user\n", 0o644))

    def test_interrupted_answer(self):
        chat, controller, read_until = self.terminal(DEMO, "--ignore-eos")
        read_until("> ")
        os.write(controller, self.QUESTION.encode() + b"\n")
        read_until("foxes.\r\n")
        read_until(" ")  # the answer has begun and would continue for thousands of tokens
        chat.send_signal(signal.SIGINT)
        read_until("> ")
        os.write(controller, b"/help\n")
        read_until("/reset")
        read_until("> ")
        os.write(controller, b"\x04")
        self.assertEqual(chat.wait(60), 0)

    def test_reasoning_is_dimmed(self):
        _, controller, read_until = self.terminal(self.reasoning_model(), "--max-new-tokens", 9)
        read_until("> ")
        os.write(controller, self.QUESTION.encode() + b"\n")
        read_until("\033[2m")
        self.assertTrue(read_until("\033[0m").strip())
        read_until("> ")


if __name__ == "__main__":
    main()
