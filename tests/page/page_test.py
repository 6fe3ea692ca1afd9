"""The page at "/", served by `troupe serve` on the embedded model and used in headless Chromium.

usage: page_test.py TROUPE [--screenshots FOLDER] [arguments of unittest]
"""
import base64
import hashlib
import json
import os
import re
import sys
import tempfile
import unittest

from browser import MISSING, Browser
from relay import Relay
from server import Server, with_chat_template

TROUPE = sys.argv.pop(1)
SHOTS = None
if len(sys.argv) > 2 and sys.argv[1] == "--screenshots":
    SHOTS = sys.argv[2]
    del sys.argv[1:3]
TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
PAGE = os.path.join(TOP, "ipc/http/page/index.html")
MODEL = os.path.join(TOP, "models/tales-5m-tq2_0.gguf")
TEMPLATE = """{% for message in messages %}{{ message.content }} {% endfor %}{% if enable_thinking %}<think>{% endif %}"""
EVIL = "<img src=x onerror=alert(1)> [a](javascript:alert(1)) <script>alert(2)</script>"
START = "Once upon a time, there was a little fox"
if not MISSING:
    from selenium.webdriver.common.keys import Keys


def setUpModule():
    global server
    server = Server(TROUPE)


def tearDownModule():
    server.end()


class ServedPageTest(unittest.TestCase):
    """What the server sends, without a browser."""

    def test_the_page_is_the_file_byte_for_byte(self):
        status, headers, body = server.get("/")
        self.assertEqual(status, 200)
        self.assertEqual(headers["Content-Type"], "text/html; charset=utf-8")
        with open(PAGE, "rb") as file:
            self.assertEqual(body, file.read())

    def test_the_policy_allows_the_page_s_own_script_and_style_only(self):
        _, headers, body = server.get("/")
        policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
        for directive, tag in (("script-src", b"script"), ("style-src", b"style")):
            inside = re.search(b"<%s>(.*)</%s>" % (tag, tag), body, re.DOTALL).group(1)
            self.assertEqual(policy[directive], "'sha256-%s'" % base64.b64encode(hashlib.sha256(inside).digest()).decode())
        self.assertEqual({name: policy[name] for name in ("default-src", "connect-src", "frame-ancestors", "base-uri")},
                         {"default-src": "'none'", "connect-src": "'self'", "frame-ancestors": "'none'",
                          "base-uri": "'none'"})
        self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
        self.assertEqual(headers["Referrer-Policy"], "no-referrer")

    def test_the_page_names_no_other_origin_and_makes_no_markup_of_text(self):
        with open(PAGE) as file:
            text = file.read()
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "@import", "url("):
            self.assertFalse(word in text, word)
        self.assertEqual(set(re.findall(r"https?://[\w.]+", text)), {"http://www.w3.org"})  # SVG's name

    def test_head_has_no_body_and_a_known_page_is_not_sent_again(self):
        _, headers, body = server.get("/")
        status, of_head, nothing = server.get("/", method="HEAD")
        self.assertEqual((status, nothing), (200, b""))
        self.assertEqual(int(of_head["Content-Length"]), len(body))
        for known in (headers["ETag"], '"other", W/' + headers["ETag"], "*"):
            self.assertEqual(server.get("/", If_None_Match=known)[0::2], (304, b""))
        self.assertEqual(server.get("/", If_None_Match='"other"')[0], 200)

    def test_only_get_and_head_are_taken(self):
        self.assertEqual(server.get("/", method="POST")[0], 405)


class BrowserTest(unittest.TestCase):
    """A browser before a server, and what every test ends with: nothing in the console, no request that left the origin."""
    @classmethod
    def serve(cls):
        return server

    @classmethod
    def setUpClass(cls):
        if MISSING:
            raise unittest.SkipTest("skipped: " + MISSING)
        cls.relay = Relay(cls.serve().socket)
        cls.origin = f"http://127.0.0.1:{cls.relay.port}"
        cls.browser = Browser(cls.origin)

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()

    def setUp(self):
        self.expected_in_console = []
        self.browser.open()
        self.browser.console()
        self.browser.requested()

    def tearDown(self):
        self.relay.release()
        self.relay.refused.clear()
        console = [line for line in self.browser.console() if not any(part in line for part in self.expected_in_console)]
        self.assertEqual(console, [])
        for url in self.browser.requested():
            self.assertRegex(url, f"^({re.escape(self.origin)}/|data:|blob:)")

    def answers(self):
        return self.browser.texts(".message.assistant .body")

    def import_messages(self, asked, answered, title=""):
        """Imports and opens a conversation of two messages."""
        conversation = {"id": "importedone", "title": title, "messages": [
            {"role": role, "turns": [{"text": text}], "turn": 0} for role, text in (("user", asked), ("assistant", answered))]}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"format": "troupe-conversations", "version": 1, "conversations": [conversation]}, file)
            file.flush()
            self.browser.find("#file").send_keys(file.name)
            self.browser.until(lambda: self.browser.all("#list .open"))
        self.browser.find("#list .open").click()

    def set_option(self, name, value):
        """Sets a field of the settings, which are closed afterwards: the system prompt, or a setting of sampling."""
        self.browser.find("#set-open").click()
        field = self.browser.find("#system" if name == "system" else "#set-" + name)
        field.clear()
        field.send_keys(value)
        self.browser.find("[data-close=set]").click()

    def begin_held_answer(self, text, path="/v1/completions"):
        """Sends a text; returns when a part of the answer is shown, and the rest is held back."""
        self.relay.hold(path, 1500)
        self.browser.find("#text").send_keys(text, Keys.ENTER)
        self.browser.until(lambda: any(self.answers()))


class StoryTest(BrowserTest):
    """On the embedded model, which has no chat template."""

    def test_a_model_without_a_chat_template_says_so_and_continues_the_text(self):
        self.assertIn("has no chat template", self.browser.text(".notice"))
        self.browser.ask(START)
        self.assertEqual(self.browser.texts(".message.user .body"), [START])
        self.assertGreater(len(self.answers()[0]), 20)
        self.assertNotIn("/v1/chat/completions", self.relay.paths())

    def test_an_answer_is_shown_while_it_comes(self):
        self.begin_held_answer(START)
        part = self.answers()[0]
        self.assertTrue(self.browser.is_answering())
        self.assertEqual(self.browser.find("#send").get_attribute("aria-label"), "Stop the answer")
        self.relay.release()
        self.browser.until(lambda: not self.browser.is_answering())
        self.assertTrue(self.answers()[0].startswith(part))
        self.assertGreater(len(self.answers()[0]), len(part))

    def test_an_answer_has_its_counts_its_time_and_its_receipt(self):
        self.browser.ask(START)
        self.assertRegex(self.browser.text(".facts"), r"^\d+ tokens·.*s·.*tok/s·\d+ in the prompt")
        self.browser.find(".facts").click()
        rows = dict(zip(self.browser.texts(".receipt dt"), self.browser.texts(".receipt dd")))
        self.assertRegex(rows["seed"], r"^\d+$")
        self.assertIn("compute", rows)
        self.assertRegex(self.browser.text("#context"), r"^\d+ of 1,024 tokens$")

    def test_a_continued_story_finds_its_beginning_in_the_cache(self):
        self.browser.ask(START)
        self.browser.ask("")
        self.assertEqual(len(self.answers()), 2)
        self.assertRegex(self.browser.texts(".facts")[1], r"\d+ cached$")

    def test_escape_stops_an_answer_and_keeps_what_came(self):
        self.begin_held_answer(START)
        self.browser.press(Keys.ESCAPE)
        self.browser.until(lambda: not self.browser.is_answering())
        self.assertTrue(self.relay.client_left.wait(30), "the connection is still there: the server goes on computing")
        self.assertIn("stopped", self.browser.texts(".message.assistant .badge"))
        self.assertGreater(len(self.answers()[0]), 0)

    def test_regenerating_keeps_both_answers_and_a_seed_gives_the_same_one(self):
        self.set_option("seed", "18446744073709551615")
        self.browser.ask(START)
        first = self.answers()[0]
        self.browser.find("[aria-label=Regenerate]").click()
        self.browser.until(lambda: not self.browser.is_answering() and self.browser.text(".turns"))
        self.assertEqual(self.browser.text(".turns"), "2/2")
        self.assertEqual(self.answers(), [first])
        self.set_option("seed", "7")
        self.browser.find("[aria-label=Regenerate]").click()
        self.browser.until(lambda: self.browser.text(".turns") == "3/3")
        self.assertNotEqual(self.answers(), [first])
        self.browser.find("[aria-label='The answer before']").click()
        self.assertEqual(self.answers(), [first])

    def test_a_fork_leaves_the_conversation_as_it_was(self):
        self.browser.ask(START)
        self.browser.ask("Then it rained.")
        before = self.answers()
        self.browser.find(".message.assistant [aria-label='Fork from here']").click()
        self.assertEqual(self.answers(), before[:1])
        self.assertEqual(len(self.browser.all("#list .open")), 2)
        self.browser.ask("The sun shone.")
        self.browser.all("#list .open")[1].click()
        self.assertEqual(self.answers(), before)

    def test_an_edited_message_is_answered_anew(self):
        self.browser.ask(START)
        self.browser.run("document.querySelector('.message.user').focus()")
        self.browser.press("e")
        self.browser.press(Keys.CONTROL + "a", "The old bear slept", Keys.ENTER)
        self.browser.until(lambda: self.browser.texts(".message.user .body") == ["The old bear slept"] and
                           not self.browser.is_answering())
        self.assertEqual(len(self.answers()), 1)
        self.assertGreater(len(self.answers()[0]), 0)

    def test_a_reload_keeps_the_conversation_and_one_that_was_cut_off(self):
        self.browser.ask(START)
        told = self.answers()
        self.browser.reload()
        self.assertEqual(self.answers(), told)
        self.assertRegex(self.browser.text(".facts"), "tokens")
        self.begin_held_answer("Then")
        self.browser.until(lambda: len(self.answers()) == 2 and self.answers()[1])
        self.browser.reload()
        self.relay.release()
        self.assertEqual(len(self.answers()), 2)
        self.assertIn("stopped", self.browser.texts(".message.assistant .badge"))

    def test_everything_can_be_done_with_the_keyboard(self):
        browser = self.browser
        self.assertEqual(browser.focus(), "text")
        browser.press(START, Keys.ENTER)
        browser.until(lambda: self.answers() and not browser.is_answering())
        browser.press(Keys.ESCAPE)
        self.assertEqual(browser.focus(), "message assistant last")
        browser.press("k")
        self.assertEqual(browser.focus(), "message user")
        browser.press("j", "r")
        browser.until(lambda: browser.text(".turns") == "2/2")
        browser.press("s")
        self.assertTrue(browser.find("#set").is_displayed())
        browser.press(Keys.TAB)
        self.assertEqual(browser.focus(), "mode")
        browser.press(Keys.ESCAPE)
        self.assertFalse(browser.find("#set").is_displayed())
        self.assertEqual(browser.focus(), "set-open")
        browser.press("?")
        self.assertTrue(browser.find("#help").is_displayed())
        browser.press(Keys.ESCAPE)
        self.assertFalse(browser.find("#help").is_displayed())
        browser.press("n")
        self.assertEqual((browser.focus(), self.answers()), ("text", []))

    def test_every_control_can_be_reached_and_has_a_name(self):
        self.browser.ask(START)
        self.browser.find("#set-open").click()
        nameless = self.browser.run("""
            const name = (node) => node.getAttribute('aria-label') || node.textContent.trim() ||
              [...(node.labels || [])].map((label) => label.textContent.trim()).join('');
            const shown = (node) => node.checkVisibility({visibilityProperty: true});
            return [...document.querySelectorAll('button, input, select, textarea, a, [tabindex], summary')]
              .filter(shown).filter((node) => !name(node) || node.tabIndex < 0).map((node) => node.outerHTML)""")
        self.assertEqual(nameless, [])

    def test_screen_readers_are_told_of_the_answer(self):
        self.browser.ask(START)
        self.assertEqual(self.browser.find("#say").get_attribute("aria-live"), "polite")
        said = self.browser.text("#say").strip()
        self.assertTrue(said == "The answer is complete" or self.answers()[0].strip().endswith(said[-20:]), said)

    def test_text_of_users_and_files_stays_text(self):
        self.import_messages(EVIL, EVIL, title="<b>t</b>")
        self.assertEqual(self.browser.text("#list .open"), "<b>t</b>")
        self.assertEqual(self.browser.texts(".message .body"), [EVIL, EVIL])
        self.assertEqual(self.browser.all("#thread img, #thread script, #thread a"), [])

    def test_what_is_exported_can_be_imported(self):
        self.browser.ask(START)
        told = self.answers()
        with tempfile.TemporaryDirectory() as folder:
            self.browser.download_to(folder)
            self.browser.find("#export").click()
            path = os.path.join(folder, "troupe-conversations.json")
            self.browser.until(lambda: os.path.exists(path))
            self.browser.open()
            self.assertEqual(self.browser.all("#list .open"), [])
            self.browser.find("#file").send_keys(path)
            self.browser.until(lambda: self.browser.all("#list .open"))
        self.browser.find("#list .open").click()
        self.assertEqual(self.answers(), told)
        self.assertRegex(self.browser.text(".facts"), "tokens")

    def test_a_file_that_is_not_ours_is_refused(self):
        for text in ("{", "[]", '{"format": "troupe-conversations", "version": 2, "conversations": []}'):
            with self.subTest(text), tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                file.write(text)
                file.flush()
                self.browser.run("document.getElementById('toast').textContent = ''")
                self.browser.find("#file").send_keys(file.name)
                self.browser.until(lambda: "Not imported" in (self.browser.text("#toast") or ""))
        self.assertEqual(self.browser.all("#list .open"), [])

    def test_a_key_in_the_address_is_kept_for_the_tab_and_taken_out(self):
        self.browser.open("#key=one-time-123")
        self.assertEqual(self.browser.driver.current_url, self.origin + "/")
        self.assertNotIn("one-time", self.browser.run("return JSON.stringify({...localStorage})"))
        del self.relay.heads[:]
        self.browser.reload()
        models = [head for head in self.relay.heads if " /v1/models " in head]
        self.assertTrue(models and all("Authorization: Bearer one-time-123" in head for head in models))
        self.assertFalse([head for head in self.relay.heads if "one-time" in head.split("\r\n")[0]])

    def test_the_server_is_watched_once_a_second_while_its_view_is_open(self):
        self.browser.press(Keys.ESCAPE)
        self.browser.until(lambda: self.browser.find("#live-open").is_displayed())
        self.browser.find("#live-open").click()
        self.browser.until(lambda: self.browser.all("#cards svg.curve path"))
        self.browser.ask(START)
        self.browser.until(lambda: self.browser.text("#cards .card:first-child b") not in (None, "–"))
        titles = self.browser.texts("#cards h3")
        self.assertEqual(titles[:4], ["Tokens per second", "Requests", "Steps", "KV cache"])
        self.assertIn("Tenants", titles)
        models = self.browser.texts("#cards .card")[titles.index("Models")]
        self.assertRegex(models, r"(?s)troupe tales 5M.*canary right .* ago.*ready")
        self.browser.find("[data-close=live]").click()
        polls = self.relay.paths().count("/metrics")
        self.assertGreater(polls, 1)
        self.browser.ask("")  # longer than a poll takes
        self.assertLessEqual(self.relay.paths().count("/metrics"), polls + 1)

    def test_the_view_of_the_server_is_not_offered_to_those_who_may_not_see_it(self):
        self.expected_in_console = ["403"]
        self.relay.refused.add("/metrics")
        self.browser.reload()
        self.browser.until(lambda: "/metrics" in self.relay.paths())
        self.browser.ask(START)
        self.assertFalse(self.browser.find("#live-open").is_displayed())

    def test_a_refused_request_says_why_and_can_be_tried_again(self):
        self.expected_in_console = ["403"]
        self.relay.refused.add("/v1/completions")
        self.browser.find("#text").send_keys(START, Keys.ENTER)
        self.browser.until(lambda: self.browser.text(".wrong"))
        self.assertIn("Not for you", self.browser.text(".wrong"))
        self.relay.refused.clear()
        self.browser.find(".wrong button").click()
        self.browser.until(lambda: not self.browser.is_answering() and any(self.answers()))
        self.assertIsNone(self.browser.text(".wrong"))

    def test_the_page_fits_a_phone(self):
        for width in (320, 390):
            self.browser.resize(width, 780)
            self.browser.open()
            self.browser.ask(START)
            self.assertEqual(self.browser.run("return document.documentElement.scrollWidth"), width)
            self.browser.find("#menu").click()
            self.browser.until(lambda: self.browser.find("#list .open").is_displayed())
        self.browser.resize(1280, 820)

    def watch_some_stories(self):
        """Opens the view of the server, and lets the model write until the curves show something."""
        self.browser.until(lambda: self.browser.find("#live-open").is_displayed())
        self.browser.find("#live-open").click()
        del self.relay.heads[:]
        stories = ("One day, Lily found a key", "The rain had stopped, and Tom", "Ben and his dog ran to the park",
                   "There was a bird who could not fly", "Mia had a red ball")
        for story in stories:
            self.browser.find("#new").click()
            self.browser.ask(story)
        while (polls := self.relay.paths().count("/metrics")) < 60:
            for _ in range(1 + polls % 7):
                self.browser.find(".message.last [aria-label=Regenerate]").click()
                self.browser.until(lambda: not self.browser.is_answering())
            self.browser.until(lambda: self.relay.paths().count("/metrics") > polls)
        self.browser.find("#new").click()

    def test_screenshots(self):
        if not SHOTS:
            self.skipTest("asked for by --screenshots only")
        for name, scheme, width, height in (("light", "light", 1180, 740), ("dark", "dark", 1180, 740),
                                            ("narrow", "light", 390, 780)):
            self.browser.resize(width, height)
            self.browser.colours(scheme)
            self.browser.open()
            self.set_option("seed", "2")
            self.set_option("temperature", "0.6")
            if name == "dark":
                self.watch_some_stories()
            self.browser.ask(START)
            self.browser.ask("The next morning,")
            self.browser.driver.save_screenshot(os.path.join(SHOTS, name + ".png"))
        self.browser.resize(1280, 820)


MARKDOWN = """# Head

A *b* **c** ***d*** `e*f*` snake_case_name 2 * 3 * 4 [g](https://example.org/h) [i](javascript:j)
k

1. one
2. two
   - in **two**

     of two
3. three

```python
def f(): return "**" + "</code>"
```

> quoted
> on

| l | m |
|---|---|
| n | `o` |
"""


class OpenedTest(unittest.TestCase):
    """The page at the address that `troupe serve --open` prints."""
    def test_the_first_to_open_the_address_is_let_in_and_nobody_else(self):
        if MISSING:
            self.skipTest("skipped: " + MISSING)
        with tempfile.TemporaryDirectory(prefix="troupe-page-") as folder:
            server = Server(TROUPE, "--listen", "tcp://127.0.0.1:0", "--keys-file", os.path.join(folder, "keys"), "--open")
            self.addCleanup(server.end)
            origin, fragment = re.search(r"^(http://127\.0\.0\.1:\d+)/(#once=\w+)$", server.log(), re.M).groups()
            browser = Browser(origin)
            self.addCleanup(browser.quit)
            browser.open(fragment)
            self.assertEqual(browser.driver.current_url, origin + "/")
            browser.ask(START)
            self.assertTrue(any(browser.texts(".message.assistant .body")))
            browser.reload()
            browser.ask("")
            browser.driver.get("about:blank")
            browser.open(fragment)  # in a browser that has kept nothing
            browser.until(lambda: "was used" in browser.text("body"))


class ConversationTest(BrowserTest):
    """On the embedded model with a chat template of the test, which lets it think if it is asked to."""
    @classmethod
    def serve(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="troupe-page-")
        path = os.path.join(cls.folder.name, "tales-chat.gguf")
        with open(MODEL, "rb") as model, open(path, "wb") as file:
            file.write(with_chat_template(model.read(), TEMPLATE))
        cls.server = Server(TROUPE, "-m", path)
        return cls.server

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.server.end()
        cls.folder.cleanup()

    def test_a_model_with_a_chat_template_is_talked_to_in_turns(self):
        self.assertIsNone(self.browser.text(".notice"))
        del self.relay.heads[:]
        self.set_option("system", "Stories for children.")
        self.browser.ask("Tell me of a fox")
        self.browser.ask("And of a bird")
        self.assertEqual(len(self.answers()), 2)
        self.assertEqual(self.relay.paths().count("/v1/chat/completions"), 2)
        self.assertNotIn("/v1/completions", self.relay.paths())
        self.assertRegex(self.browser.texts(".facts")[1], r"^\d+ tokens?·.*in the prompt")

    def test_reasoning_is_shown_beside_the_answer(self):
        self.browser.find("#set-open").click()
        self.browser.run("arguments[0].value = 'high'; arguments[0].onchange()", self.browser.find("#effort"))
        self.browser.find("[data-close=set]").click()
        self.browser.ask("Once upon a time")
        self.assertEqual(self.browser.text(".reasoning summary"), "Thoughts")
        self.assertGreater(len(self.browser.text(".reasoning .text")), 20)
        self.assertEqual(self.answers(), [""])

    def test_any_model_continues_a_text_if_it_is_told_to(self):
        self.browser.find("#set-open").click()
        self.browser.run("arguments[0].value = 'text'; arguments[0].onchange()", self.browser.find("#mode"))
        self.browser.find("[data-close=set]").click()
        self.assertIn("continues your text", self.browser.text(".notice"))
        del self.relay.heads[:]
        self.browser.ask(START)
        self.assertIn("/v1/completions", self.relay.paths())
        self.browser.reload()
        self.assertIn("continues your text", self.browser.text(".notice"))

    def test_escape_stops_an_answer(self):
        self.begin_held_answer("Tell me of a fox", "/v1/chat/completions")
        self.browser.press(Keys.ESCAPE)
        self.browser.until(lambda: not self.browser.is_answering())
        self.assertTrue(self.relay.client_left.wait(30), "the connection is still there: the server goes on computing")
        self.assertIn("stopped", self.browser.texts(".message.assistant .badge"))

    def test_markdown_of_an_answer_becomes_elements_and_nothing_else_does(self):
        self.import_messages(MARKDOWN, MARKDOWN + EVIL)
        self.assertEqual(self.browser.texts(".message.user .body"), [MARKDOWN])
        found = {selector: self.browser.texts(".md " + selector) for selector in
                 ("h3", "p > em", "p > strong", "p > code", "p > a", "ol > li > ul > li", "pre code", ".block header",
                  "blockquote", "th", "td", "td code")}
        self.assertEqual(found, {
            "h3": ["Head"], "p > em": ["b"], "p > strong": ["c", "d"], "p > code": ["e*f*"], "p > a": ["g"],
            "ol > li > ul > li": ["in twoof two"], "pre code": ['def f(): return "**" + "</code>"'],
            ".block header": ["pythonCopy"], "blockquote": ["quotedon"], "th": ["l", "m"], "td": ["n", "o"],
            "td code": ["o"]})
        paragraphs = self.browser.texts(".md > p")
        self.assertIn("snake_case_name 2 * 3 * 4 g [i](javascript:j)k", paragraphs[0])
        self.assertEqual(paragraphs[-1], EVIL)
        self.assertEqual(len(self.browser.all(".md ol")), 1)
        self.assertEqual(self.browser.all(".md img, .md script"), [])
        link = self.browser.find(".md a")
        self.assertEqual(link.get_attribute("href"), "https://example.org/h")
        self.assertIn("noreferrer", link.get_attribute("rel"))

    def test_markdown_that_comes_in_pieces_is_shown_like_the_whole(self):
        pieces = self.browser.run("""
            const shown = (text) => text.replace(/ tabindex="0"/g, '');
            return [1, 3, 7].map((size) => {
              const piecewise = document.createElement('div'), whole = document.createElement('div');
              const growing = new troupe.GrowingText(piecewise, true);
              for (let i = size; i < arguments[0].length + size; i += size) growing.show(arguments[0].slice(0, i));
              new troupe.GrowingText(whole, true).show(arguments[0]);
              return shown(piecewise.innerHTML) === shown(whole.innerHTML);
            })""", MARKDOWN * 3)
        self.assertEqual(pieces, [True, True, True])


if __name__ == "__main__":
    if MISSING:
        print("skipped: " + MISSING)
    unittest.main(verbosity=2)
