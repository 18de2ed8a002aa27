"""The page's engine view. Catches: forwards, sizes, latencies or memory that are not drawn; one tall bar or peak that
flattens all others; charts without a unit or time span; values that pointer or keyboard cannot reach; a hidden page
that keeps polling."""

import pathlib
import re

from page_case import PHONE, PageCase

SIZES = "[[1, 900000, 0], [2, 40, 20], [4, 30, 60], [8, 20, 0], [16, 0, 0], [32, 10, 0]].map(([size, count, padded]) => ({size, count, padded}))"


class EngineCases(PageCase):
    def test_engine_is_drawn(self):
        page = self.open()
        self.chats(page, "Where do foxes live?")
        page.evaluate("document.getElementById('tab-chat').focus()")
        page.press("ArrowRight", 39)
        page.wait_for("document.getElementById('engine-state').textContent === 'live'")
        assert page.evaluate("document.activeElement.id") == "tab-engine"
        assert page.evaluate("document.getElementById('chat').hidden")
        # The type is float32 if the processor does not multiply bfloat16 (device/cpu/host_limits.cpp).
        flags = pathlib.Path("/proc/cpuinfo").read_text().split()
        dtype, weights = ("bf16", 12.3) if {"avx512_bf16", "amx_bf16"} & set(flags) else ("f32", 24.5)
        assert f"Qwen3 · 6.43 M parameters · 6 layers · {dtype} · " in self.text(page, "#engine-text")
        # The strip has 6 pieces and 6 split ops. The repeated layer is drawn once, with its count.
        assert self.count(page, "#picture .mini-split_op") == 6
        assert self.count(page, "#picture .mini-piece") == 6 + 1
        assert self.count(page, "#picture .split_op") == 2
        assert self.text(page, "#picture").count("× 5") == 1
        page.wait_for("document.querySelectorAll('.ladder .hit').length >= 2")
        assert re.search(r"\d+ of \d+ sizes used", self.text(page, ".ladder .read"))
        page.evaluate("document.querySelector('.ladder svg').focus()")
        page.press("Home", 36)
        assert self.text(page, ".ladder .read").startswith("4 tokens")
        assert "Replayed" in self.text(page, "#reasons")
        assert "ms" in self.text(page, "#latency")
        assert self.count(page, "#memory li") == 7 and f"Weights{weights} MiB" in self.text(page, "#memory")
        page.wait_for("engine.history.length >= 3")  # it keeps polling
        self.sound(page)

    def test_it_asks_only_while_it_is_seen(self):
        page = self.open(path="/#live")
        page.wait_for("engine.history.length")
        self.click(page, "#tab-chat")
        page.wait_for("!engine.asking")
        asked = "performance.getEntriesByName(location.origin + '/engine_state').length"
        before = page.evaluate(asked)
        page.evaluate("poll()")  # as the timer would
        assert page.evaluate(asked) == before and not page.evaluate("engine.asking"), "it asks unseen"

    def test_charts_begin_with_the_answers_of_the_chat(self):
        page = self.open()
        self.chats(page, "Where do foxes live?")
        page.wait_for("!engine.asking && engine.history.length >= 2")
        self.click(page, "#tab-engine")
        page.wait_for("document.querySelectorAll('.chart .line0').length > 0")
        rates = page.evaluate("engine.history.map((point) => point.rate).filter((rate) => rate > 0)")
        assert rates, "the tokens of the answer are in no rate"

    def test_one_tall_bar_does_not_flatten_the_others(self):
        page = self.open(path="/#live")
        page.wait_for("engine.history.length")
        page.evaluate("setConnection = () => {}; showState = () => {}")  # so that nothing is drawn over the next drawing
        page.evaluate(f"ladders.decode.show({{sizes: {SIZES}, to_come: [], dropped: [], enabled: true}})")
        chart = ".ladder:nth-child(2)"
        heights = page.evaluate(f"[...document.querySelectorAll('{chart} .pad')].map((bar) => bar.height.baseVal.value)")
        assert len(heights) == 5 and min(heights[1:]) > heights[0] / 6, heights
        assert heights[1] > heights[2] > heights[3] > heights[4], heights
        assert self.count(page, chart + " .gap") == 1 and self.text(page, chart + " .beyond").replace("\u202f", " ") == "900 000"
        page.evaluate(f"document.querySelector('{chart} svg').focus()")
        page.press("Home", 36)
        assert self.text(page, chart + " .read").replace("\u202f", " ") == "1 request: 900 000 replays, 0 % padding"
        page.press("ArrowRight", 39)
        assert self.text(page, chart + " .read").replace("\u202f", " ") == "2 requests: 40 replays, 25.0 % padding"
        texts = page.evaluate(f"[...document.querySelectorAll('{chart} text')].map((t) => t.textContent)")
        assert "replays" in texts and "captured size, requests" in texts and {"0", "1", "32"} <= set(texts), texts
        page.evaluate(f"""(() => {{ const svg = document.querySelector('{chart} svg'), box = svg.getBoundingClientRect();
            svg.dispatchEvent(new PointerEvent('pointermove', {{clientX: box.right - 4, clientY: box.top + 40}})); }})()""")
        assert self.text(page, chart + " .read").startswith("32 requests: 10 replays")

    def test_forwards_of_images_have_reasons_of_their_own(self):
        page = self.open(path="/#live")
        page.wait_for("engine.history.length")
        page.evaluate("setConnection = () => {}; showState = () => {}")  # so that nothing is drawn over the next drawing
        page.evaluate("""showReasons({
            reasons: [{name: 'exact_size', text: 'a captured size', replayed: true, count: 6}],
            vision_reasons: [{name: 'replayed', text: 'within a budget', replayed: true, count: 3},
                             {name: 'above_largest_size', text: 'more patches than the largest budget', replayed: false, count: 1},
                             {name: 'dropped', text: 'its capture failed', replayed: false, count: 0}]})""")
        lines = page.evaluate("[...document.querySelectorAll('#reasons li')].map((line) => [line.className, line.firstChild.textContent, line.children[1].textContent.replace(/\\s/g, ' ')])")
        assert lines == [["", "Replayed: a captured size", "660.0 %"], ["", "Images: Replayed: within a budget", "330.0 %"],
                         ["eager", "Images: Eager: more patches than the largest budget", "110.0 %"]], lines
        assert self.text(page, "#reasons-lead").replace("\u202f", " ") == "10.0 % ran eagerly, operator by operator."

    def test_where_axes_end(self):
        page = self.open()
        for values, top in (("[]", 1), ("[0, 0]", 1), ("[1]", 1), ("[3, 7]", 8), ("[0, 1000, 10]", 16), ("[5, 6, 7, 8, 20]", 20), ("[1, 1, 1, 1, 1, 500]", 1.6), ("[0.013]", 0.016),
                            ("Array(300).fill(100).concat(12000)", 160), ("[2400000]", 2400000)):
            found = page.evaluate(f"axisTop({values})")
            assert abs(found - top) < 1e-9 * top, f"{values}: {found}, not {top}"

    def test_lines_have_axes_names_and_breaks(self):
        page = self.open(path="/#live")
        page.wait_for("engine.history.length")
        page.evaluate("showState = () => {}")
        # The samples span two minutes, with a gap of twenty seconds and one sample far beyond the others.
        page.evaluate("""(() => {
            const points = [];
            for (let t = 0; t <= 120; ++t) if (t < 60 || t > 80) points.push({t, running: t === 100 ? 5000 : 4, queued: 2, rate: t === 30 ? 98765 : 100 + t % 7});
            for (const chart of Object.values(charts)) chart.show(points, 120, 120);
        })()""")
        first = ".tile:nth-child(1) "
        texts = page.evaluate(f"[...document.querySelectorAll('{first}.chart > svg text')].map((t) => t.textContent.replace('\u202f', ' '))")
        assert texts == ["0", "2.5", "5", "requests", "2 min ago", "now", "5 000"], texts
        assert self.count(page, first + ".break") == 1
        assert page.evaluate(f"document.querySelectorAll('{first}.chart > svg .line0').length") == 2, "the gap is drawn over"
        solid, dashed = page.evaluate(f"['line0', 'line1'].map((line) => getComputedStyle(document.querySelector('{first}.chart > svg .' + line)).strokeDasharray)")
        assert solid == "none" and dashed != "none"
        assert page.evaluate(f"['line0', 'line1'].map((line) => getComputedStyle(document.querySelector('{first}.sample .' + line)).strokeDasharray)") == [solid, dashed]
        assert self.text(page, first + ".keys") == "running4waiting2"
        label = page.evaluate(f"document.querySelector('{first}.chart > svg').getAttribute('aria-label')")
        assert label == "Requests, the last 2 min. Now: running 4, waiting 2. Arrow keys go through time.", label
        page.evaluate(f"document.querySelector('{first}.chart > svg').focus()")
        for _ in range(21):
            page.press("ArrowLeft", 37)
        assert self.text(page, first + ".keys").replace("\u202f", " ") == "running5 000waiting220 s ago", self.text(page, first + ".keys")
        assert page.evaluate(f"document.querySelector('{first}.keys').getAttribute('aria-live')") == "polite"
        page.evaluate("document.activeElement.blur()")
        assert self.text(page, first + ".keys") == "running4waiting2"
        # The peak is clipped at the top, and the other values keep their height.
        path = page.evaluate("document.querySelector('.tile:nth-child(2) .chart > svg .line0').getAttribute('d')")
        ys = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", path)]
        assert min(ys) == 22 and sorted(ys)[1] < 100, "flattened"
        assert "98\u202f765" in page.evaluate("[...document.querySelectorAll('.tile:nth-child(2) .chart .beyond')].map((t) => t.textContent)")
        self.sound(page)

    def test_labels_do_not_run_into_each_other(self):
        page = self.open(PHONE, "/#live")
        page.wait_for("engine.history.length")
        page.evaluate("showState = () => {}")
        page.evaluate("ladders.prefill.show({sizes: Array.from({length: 60}, (_, i) => ({size: 16 * (i + 1), count: i % 9 ? 3 : 10 ** (4 + i % 3), padded: 0})), to_come: [], dropped: [], enabled: true})")
        overlaps = page.evaluate("""(() => {
            const boxes = [...document.querySelectorAll('.ladder:first-child text')].map((t) => [t.getBoundingClientRect(), t.textContent]);
            return boxes.flatMap(([a, name], i) => boxes.slice(i + 1).filter(([b]) => a.left < b.right && b.left < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom).map(([, other]) => [name, other]));
        })()""")
        assert overlaps == [], overlaps
        assert self.count(page, ".ladder:first-child .gap") == 7 and self.count(page, ".ladder:first-child .beyond") >= 3
        self.sound(page)
