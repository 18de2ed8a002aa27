"""Controls a headless Chromium by its DevTools protocol over a pipe, with the standard library alone.

    with Browser(chromium) as browser:
        page = browser.open("http://127.0.0.1:30000/", width=1280, height=800)
        page.wait_for("document.title === 'Tessera'")
        page.screenshot("page.png")
"""

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

TIMEOUT_S = 60  # machines under test are busy


class BrowserError(Exception):
    pass


def find_chromium():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    return None


class Browser:
    def __init__(self, program):
        self.profile = tempfile.TemporaryDirectory(prefix="tessera-page-", ignore_cleanup_errors=True)
        to_read, self.to_browser = os.pipe()
        self.from_browser, to_write = os.pipe()
        command = [program, "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}",
                   "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-extensions",
                   "--disable-component-update", "--no-first-run", "--hide-scrollbars", "about:blank"]
        if os.geteuid() == 0:
            command.insert(1, "--no-sandbox")  # Chromium's sandbox refuses to run as root
        # The shell gives the browser the pipe's ends as descriptors 3 and 4.
        self.process = subprocess.Popen(["sh", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "sh", *command],
                                        pass_fds=(to_read, to_write), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.buffer = b""
        self.next_id = 0
        self.events = []  # (session, method, params)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.to_browser)
        os.close(self.from_browser)
        self.profile.cleanup()

    def _message(self, deadline):
        while b"\0" not in self.buffer:
            if not select.select([self.from_browser], [], [], max(0, deadline - time.monotonic()))[0]:
                raise BrowserError("the browser does not answer")
            data = os.read(self.from_browser, 1 << 20)
            if not data:
                raise BrowserError("the browser has ended")
            self.buffer += data
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def _keep(self, message):
        if "method" in message:
            self.events.append((message.get("sessionId"), message["method"], message["params"]))

    def call(self, method, session=None, **params):
        self.next_id += 1
        request = {"id": self.next_id, "method": method, "params": params}
        if session:
            request["sessionId"] = session
        os.write(self.to_browser, json.dumps(request).encode() + b"\0")
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            message = self._message(deadline)
            if message.get("id") == self.next_id:
                if "error" in message:
                    raise BrowserError(f"{method}: {message['error']['message']}")
                return message["result"]
            self._keep(message)

    def wait_event(self, session, method, **wanted):
        """Waits until the session has an event of this name with these parameters, if it has none yet."""
        deadline = time.monotonic() + TIMEOUT_S
        while not any(event[:2] == (session, method) and wanted.items() <= event[2].items() for event in self.events):
            self._keep(self._message(deadline))

    def open(self, url, **look):
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, context)
        page.look(**look)
        page.navigate(url)
        return page


class Page:
    def __init__(self, browser, session, context):
        self.browser, self.session, self.context = browser, session, context
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def events(self, method):
        return [params for session, name, params in self.browser.events if session == self.session and name == method]

    def look(self, width, height, dark=False, touch=False, still=False):
        """`still` means that the user asks for less motion."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                            {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"}])

    def navigate(self, url):
        """Navigates and waits until the page is loaded, because a script that runs during navigation is lost."""
        loader = self.call("Page.navigate", url=url)["loaderId"]
        self.browser.wait_event(self.session, "Page.lifecycleEvent", loaderId=loader, name="load")

    def reload(self):
        self.navigate(self.evaluate("location.href"))

    def beside(self, url):
        """Opens another page of the same profile, which shares its storage."""
        target = self.browser.call("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        page = Page(self.browser, self.browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"], self.context)
        page.navigate(url)
        return page

    def downloads(self, folder):
        """Makes the page's downloads go to this folder."""
        self.browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder), browserContextId=self.context)

    def choose_file(self, selector, path):
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(path)])

    def evaluate(self, script):
        """Returns the value of an expression; awaits a promise."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise BrowserError(f"{script}: {result['exceptionDetails']['exception'].get('description')}")
        return result["result"].get("value")

    def wait_for(self, condition, timeout_s=TIMEOUT_S):
        deadline = time.monotonic() + timeout_s
        while not self.evaluate(f"Boolean({condition})"):
            if time.monotonic() > deadline:
                raise BrowserError(f"this did not come true in {timeout_s} s: {condition}")
            time.sleep(0.05)

    def press(self, key, code, shift=False):
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, modifiers=8 if shift else 0)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def screenshot(self, path=None):
        """Returns the bytes of a PNG."""
        png = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        if path:
            pathlib.Path(path).write_bytes(png)
        return png

    def problems(self):
        """Returns messages of the console, the network and uncaught errors."""
        console = [" ".join(str(a.get("value", a.get("description"))) for a in e["args"])
                   for e in self.events("Runtime.consoleAPICalled") if e["type"] in ("error", "warning", "assert")]
        thrown = [e["exceptionDetails"].get("exception", {}).get("description", e["exceptionDetails"]["text"])
                  for e in self.events("Runtime.exceptionThrown")]
        logged = [e["entry"]["text"] for e in self.events("Log.entryAdded") if e["entry"]["level"] in ("error", "warning")]
        return console + thrown + logged

    def requested(self):
        """Returns the addresses of all requests."""
        return [e["request"]["url"] for e in self.events("Network.requestWillBeSent")]
