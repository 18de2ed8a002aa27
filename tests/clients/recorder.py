"""A proxy in front of a server that records the clients' requests and the shape of their answers."""

import http.client
import json
import pathlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from openai_test import shape_of_body

RECORD = pathlib.Path(__file__).resolve().parents[1] / "data" / "server" / "client_exchanges.json"
# The headers of a client that may change the answer.
ESSENTIAL = ("Accept", "Content-Type", "Content-Encoding", "Accept-Encoding", "User-Agent")
LONGEST = 4000  # bytes of the largest body that is recorded; overlong prompts are left out


class Recorder:
    def __init__(self, port):
        self.kept = []
        recorder = self

        class Proxy(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
                headers = {k: v for k, v in self.headers.items() if k.lower() not in ("connection", "host", "accept-encoding")}
                connection.request(self.command, self.path, body or None, headers)
                response = connection.getresponse()
                data = response.read()
                connection.close()
                recorder.keep(self, body, response.status, data)
                self.send_response(response.status)
                for name, value in response.headers.items():
                    if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = answer

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
        self.server.handle_error = lambda *_: None  # a client that has left is not a fault
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def keep(self, request, body, status, data):
        if len(body) > LONGEST or not request.path.startswith("/v1/"):
            return
        exchange = {"method": request.command, "path": request.path,
                    "headers": {name: request.headers[name] for name in ESSENTIAL if name in request.headers},
                    "body": json.loads(body) if body else None, "status": status, "answer": shape_of_body(data)}
        if exchange not in self.kept:
            self.kept.append(exchange)

    @staticmethod
    def write(kept):
        """Writes the exchanges. Leaves out duplicates, which clients with many users send."""
        seen = [exchange for i, exchange in enumerate(kept) if exchange not in kept[:i]]
        RECORD.write_text(json.dumps(seen, indent=1, ensure_ascii=False) + "\n")
