"""Markdown in answers. Catches: model text that becomes part of the page, links to unsafe places, tables, lists, code
or maths that are drawn wrongly, text that takes the page seconds to parse, and blocks that are rebuilt while an answer
grows."""

import json

from page_case import DESKTOP, PHONE, PageCase

HOSTILE = """# <img src=x onerror="window.ran=1">
<script>window.ran = 1</script>
<svg onload=window.ran=1>

| <img src=x onerror=window.ran=1> | [x](javascript:window.ran=1) |
|---|---|
| <iframe srcdoc="<script>parent.ran=1</script>"> | `<b>` |

- <a href="javascript:window.ran=1">x</a>

> <style>* { display: none }</style>

```html"><img src=x onerror=window.ran=1>
</code></pre><script>window.ran = 1</script>
```

$<img src=x onerror=window.ran=1>$ \\[<b onmouseover=window.ran=1>\\]

![x](https://example.com/pixel.png) ![y](javascript:window.ran=1) <https://example.com/"onclick="window.ran=1>"""
UNSAFE = ["javascript:alert(1)", "JaVaScRiPt:alert(1)", "java\tscript:alert(1)", "vbscript:x", "data:text/html,<script>1</script>",
          "file:///etc/passwd", "blob:null/1", "//example.com", "/engine_state", "#chat", "javascript&#58;alert(1)", "\x01javascript:alert(1)"]


class MarkdownCases(PageCase):
    def html(self, page, text):
        return page.evaluate(f"(() => {{ const d = document.createElement('div'); d.append(...markdown({json.dumps(text)})); return d.innerHTML; }})()")

    def test_the_basics(self):
        page = self.open()
        html = self.html(page, "# Head\n**b** `c<i>` *e* _e2_ ~~s~~ 2*3*4 snake_case_name **open\n\n- one\n  more\n- two\n\n  after\n  - deep\n\n3. x\n4. y\n\n> q\n> - w\n\n---\nend\\*")
        for part in ('<h3 class="depth1">Head</h3>', "<strong>b</strong>", "<code>c&lt;i&gt;</code>", "<em>e</em>", "<em>e2</em>", "<del>s</del>", "2*3*4", "snake_case_name", "**open",
                     "<li>one\nmore</li>", "<li>two<p>after</p><ul><li>deep</li></ul></li>", '<ol start="3"><li>x</li><li>y</li></ol>',
                     "<blockquote><p>q</p><ul><li>w</li></ul></blockquote>", "<hr>", "<p>end*</p>"):
            assert part in html, f"{part} is not in {html}"

    def test_nested_marks(self):
        page = self.open()
        for text, wanted in {"***x***": "<strong><em>x</em></strong>", "**a *b* c**": "<strong>a <em>b</em> c</strong>", "*a **b** c*": "<em>a <strong>b</strong> c</em>",
                             "**a `**` b**": "<strong>a <code>**</code> b</strong>", "``a`b``": "<code>a`b</code>", "* *": "* *", "a `b": "a `b", "`a` ` `b`": "<code>a</code>"}.items():
            html = self.html(page, "w " + text)
            assert wanted in html, f"{text}: {html}"

    def test_tables(self):
        page = self.open()
        html = self.html(page, "before\n\n| a | *b* | c |\n|:--|:-:|--:|\n| 1 | `x|y` | 3 \\| 4 |\n| only |\n\nafter")
        for part in ('<th scope="col" class="left">a</th>', '<th scope="col" class="middle"><em>b</em></th>', '<td class="right">3 | 4</td>', "<code>x|y</code>",
                     '<td class="left">only</td><td class="middle"></td><td class="right"></td>', "<p>after</p>"):
            assert part in html, f"{part} is not in {html}"
        for no_table in ("a | b", "a | b\nc | d", "|a|b|\n|---|", "---|---"):
            assert "<table" not in self.html(page, no_table), no_table

    def test_links(self):
        page = self.open()
        for text, address, words in (("[x](https://a.b/c?d=1&e=(f))", "https://a.b/c?d=1&amp;e=(f)", "x"), ("see https://a.b/c.", "https://a.b/c", "https://a.b/c"),
                                     ("(http://a.b)", "http://a.b/", "http://a.b"), ("<mailto:a@b.c>", "mailto:a@b.c", "mailto:a@b.c"),
                                     ('[*x*](https://a.b "title")', "https://a.b/", "<em>x</em>"), ("![cat](https://a.b/cat.png)", "https://a.b/cat.png", "Picture: cat")):
            html = self.html(page, text)
            assert f'<a href="{address}" title="{address}" target="_blank" rel="noopener noreferrer nofollow">{words}</a>' in html, f"{text}: {html}"
        for address in UNSAFE:
            for text in (f"[x]({address})", f"![x]({address})", f"<{address}>", f"[x](<{address}>)"):
                assert "<a" not in self.html(page, text), f"{text!r}: {self.html(page, text)}"

    def test_maths_stays_as_written(self):
        page = self.open()
        for maths in ("$a_1 * b_2 * c$", "\\(x_{i} \\_ *y*\\)", "$$\\sum_{i} x_i$$", "\\[ \\frac{a}{b} \\]", "$\\text{<b>}$"):
            page.evaluate("window.host = document.createElement('div')")
            page.evaluate(f"host.append(...markdown({json.dumps('so ' + maths + ' it is')}))")
            assert page.evaluate("host.querySelector('.maths').textContent") == maths
            assert page.evaluate("host.textContent") == f"so {maths} it is"
        block = "\\[\n\\begin{matrix} a & b_1 \\\\\n# | c \\end{matrix}\n\\]"
        assert page.evaluate(f"(() => {{ const [node] = markdown({json.dumps(block)}); return [node.className, node.textContent]; }})()") == ["maths", block]
        for prices in ("It costs $5 and $10.", "$ 5", "5$", "US$ and A$1", "\\$5 is $"):
            assert "maths" not in self.html(page, prices), prices

    def test_code_is_highlighted(self):
        page = self.open()
        for language, code, marks in (
                ("python", "def f(x):  # note\n    return 'a\\'b' + str(1.5e3)", ["keyword:def", "call:f", "comment:# note", "keyword:return", "string:'a\\'b'", "call:str", "number:1.5e3"]),
                ("cpp", "#include <a>\nint x = 0xFFu; /* two\nlines */ // end", ["key:#include", "keyword:int", "number:0xFFu", "comment:/* two\nlines */", "comment:// end"]),
                ("js", "const s = `a\n${b}`;", ["keyword:const", "string:`a\n${b}`"]), ("json", '{"a": [true, "b"]}', ['key:"a"', "keyword:true", 'string:"b"']),
                ("sh", 'for i in $#; do echo "x" # c\ndone', ["keyword:for", "keyword:in", "keyword:do", 'string:"x"', "comment:# c", "keyword:done"]),
                ("sql", "SELECT a FROM b -- c", ["keyword:SELECT", "keyword:FROM", "comment:-- c"]), ("html", '<a href="x"> <!-- c -->', ["key:<a", 'string:"x"', "key:>", "comment:<!-- c -->"]),
                ("yaml", "a: 1 # c", ["key:a", "number:1", "comment:# c"]), ("rust", "fn f<'a>() -> char { 'x' }", ["keyword:fn", "string:'x'"]),
                ("constructor", "if x", []), ("unknown", "if x", [])):
            found = page.evaluate(f"""(() => {{ const nodes = highlighted({json.dumps(code)}, {json.dumps(language)});
                window.whole = nodes.map((n) => n.textContent ?? n).join("");
                return nodes.filter((n) => n.className).map((n) => n.className.replace("code-", "") + ":" + n.textContent); }})()""")
            assert found == marks, f"{language}: {found}"
            assert page.evaluate("whole") == code, "code is lost"
        html = self.html(page, "```js\n<script>\n```\n~~~\na\n```\n~~~\n  ```\n  in\n  ```\n```py\nopen")
        assert html.count('class="block"') == 4 and "&lt;script&gt;" in html and "a\n```" in html and ">in<" in html and ">open<" in html, html

    def test_hostile_text_stays_text(self):
        page = self.open_fake()
        self.answer(page, "Attack.", HOSTILE)
        self.answer(page, "<img src=x onerror=window.ran=1>", "ok", '{logprobs: {content: [{token: "<img src=x onerror=window.ran=1>", logprob: -1, top_logprobs: []}]}}')
        self.click(page, ".exchange.last [aria-label='Show probabilities']")
        self.click(page, "#open-library")
        assert page.evaluate("window.ran") is None
        tags = page.evaluate("[...new Set([...document.querySelectorAll('#log *, #kept *')].map((e) => e.localName))].sort()")
        known = set("a article b blockquote button code del details div em h3 h4 h5 h6 hr i li ol p path pre section small span strong summary svg table tbody td th thead tr ul".split())
        assert set(tags) <= known, set(tags) - known
        attributes = page.evaluate("[...document.querySelectorAll('#log *')].flatMap((e) => e.getAttributeNames()).filter((name) => name.startsWith('on') || name === 'style' || name === 'src')")
        assert attributes == [], attributes
        assert page.evaluate("[...document.querySelectorAll('#log a')].every((a) => /^https:\\/\\/example\\.com\\//.test(a.href))")
        self.sound(page)
        # Even a script that got into the page would not run.
        page.evaluate("{const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s);}")
        assert page.evaluate("window.ran") is None
        assert any("Content Security Policy" in problem for problem in page.problems())

    def test_no_text_takes_long(self):
        # Each text takes tens of milliseconds; a quadratic parser would take tens of seconds.
        page = self.open()
        for unit in ("*", "**a ", "`", "a`b ", "``a` ", "$", "$a ", "[", "[a](", "![", "<", "<https://", "_a ", "~~", "\\(", "\\", ">", "> ", "- ", "  - ", "|", "a|b\n-|-\n", "```\n", "\\[\n", "$$\n", "#",
                     "https://a.b/", "(", "1. ", "\t", "***a", "__a ", "<br", "&"):
            text = (unit * 80000)[:80000]
            took = page.evaluate(f"(() => {{ const begin = performance.now(); markdown({json.dumps(text)}); return performance.now() - begin; }})()")
            assert took < 5000, f"{unit!r} × {len(text)}: {took:.0f} ms"
        for language in ("c", "js", "python", "rust", "go", "java", "shell", "sql", "json", "yaml", "css", "html"):
            for unit in ('"', "'", "`", "/*", "//", "#", "-", "a", "1", "a-", "\\", "<", "<!--", " ", '"a"', "'''", '"""', "_", "[", "a.", "0x", "1.", "\t", ":"):
                took = page.evaluate(f"(() => {{ const begin = performance.now(); highlighted({json.dumps(unit)}.repeat(49999 / {len(unit)}), '{language}'); return performance.now() - begin; }})()")
                assert took < 5000, f"{language}, {unit!r}: {took:.0f} ms"

    def test_blocks_that_stay_are_kept(self):
        page = self.open_fake()
        self.ask(page, "Grow.")
        self.asked(page, 1)
        page.evaluate("fake.arrive(1000, fake.chunk('First.\\n\\nSec', 2))")
        page.wait_for("document.querySelectorAll('.answer .said p').length === 2")
        page.evaluate("window.first = document.querySelector('.answer .said p')")
        page.evaluate("fake.arrive(1000, fake.chunk('ond.\\n\\n| a |\\n|---|\\n| 1 |', 9))")
        page.wait_for("document.querySelector('.answer .said td')")
        assert page.evaluate("document.querySelector('.answer .said p') === first"), "a selection would be lost"
        assert self.text(page, ".answer .said p:nth-child(2)") == "Second."
        page.evaluate("fake.end(1000)")
        self.ended(page)

    def test_wide_things_scroll_by_themselves(self):
        for look in (PHONE, DESKTOP):
            page = self.open_fake(look)
            wide = "x" * 300
            self.answer(page, "Wide. " + wide, f"{wide}\n\n```\n{wide}\n```\n\n|{'a very wide column|' * 12}\n|{'---|' * 12}\n|{'cell|' * 12}\n\n\\[\n{wide} \n\\]\n\nhttps://example.com/{wide}\n\n`{wide}` ${wide}$")
            self.sound(page)
            assert page.evaluate("[...document.querySelectorAll('.said > *')].every((e) => e.getBoundingClientRect().right <= innerWidth)")
            assert page.evaluate("[...document.querySelectorAll('.table, pre')].every((e) => e.scrollWidth > e.clientWidth && e.tabIndex === 0)"), "not reachable by keyboard"

    def test_copy_buttons(self):
        page = self.open_fake()
        page.evaluate("window.copies = []; navigator.clipboard.writeText = async (text) => { copies.push(text); }")
        self.answer(page, "Code?", "Here:\n```py\nx = 1\n```")
        self.click(page, "[aria-label='Copy code']")
        self.click(page, "[aria-label='Copy answer']")
        page.wait_for("copies.length === 2 && document.querySelector('[aria-label=Copied]')")
        assert page.evaluate("copies") == ["x = 1", "Here:\n```py\nx = 1\n```"]
        page.evaluate("navigator.clipboard.writeText = async () => { throw new Error('no'); }")
        self.click(page, "[aria-label='Copy code']")
        page.wait_for("document.querySelector('[aria-label=\"Copy code\"]').textContent === 'Not allowed'")
