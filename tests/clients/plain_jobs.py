"""Jobs that need no client from PyPI: a raw socket, wrk, a browser."""

import shutil
import socket
import subprocess
from urllib.parse import urlsplit

from jobs import KEY, NAME, URL, Skipped, check, main

HOST, PORT = urlsplit(URL).hostname, urlsplit(URL).port


def raw_socket():
    body = f'{{"model": "{NAME}", "prompt": "Once", "max_tokens": 2}}'
    ask = (f"POST /v1/completions HTTP/1.1\r\nHost: {HOST}:{PORT}\r\nAuthorization: Bearer {KEY}\r\n"
           f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}")
    last = f"GET /health HTTP/1.1\r\nHost: {HOST}:{PORT}\r\nConnection: close\r\n\r\n"
    with socket.create_connection((HOST, PORT), timeout=60) as connection:
        connection.sendall((ask + ask + last).encode())  # three requests at once on one connection
        answers = b"".join(iter(lambda: connection.recv(65536), b""))
    check(answers.count(b"HTTP/1.1 200 OK") == 3, answers)


def wrk():
    if shutil.which("wrk") is None:
        raise Skipped("wrk is not installed")
    result = subprocess.run(["wrk", "-t", "1", "-c", "8", "-d", "2s", URL + "/health"], capture_output=True, text=True,
                            timeout=60, check=True)
    check("Requests/sec" in result.stdout and "Non-2xx" not in result.stdout and "Socket errors" not in result.stdout,
          result.stdout)


def browser():
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise Skipped("chromium is not installed")
    result = subprocess.run([chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom", URL + "/"],
                            capture_output=True, text=True, timeout=120, check=True)
    check("<textarea" in result.stdout, result.stdout[:400])


main(raw_socket, wrk, browser)
