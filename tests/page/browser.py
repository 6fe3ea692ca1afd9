"""Headless Chromium with the page, by what a user sees and presses. Needs Debian's chromium, chromium-driver and
python3-selenium."""
import json
import shutil

try:
    from selenium import webdriver
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import WebDriverWait
    MISSING = None
except ImportError:
    MISSING = "python3-selenium is not installed"
if not MISSING and not (shutil.which("chromium") and shutil.which("chromedriver")):
    MISSING = "chromium and chromium-driver are not installed"

WAIT_SECONDS = 60


class Browser:
    def __init__(self, origin):
        self.origin = origin
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                     "--disable-background-networking", "--no-first-run", "--lang=en"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
        self.requests = []
        self.resize(1280, 820)

    def quit(self):
        self.driver.quit()

    def resize(self, width, height):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def colours(self, scheme):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                    {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def download_to(self, folder):
        self.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": folder})

    def open(self, fragment=""):
        """The page anew, in a browser that has kept nothing."""
        self.driver.get(self.origin + "/version")
        self.run("localStorage.clear(); sessionStorage.clear()")
        self.driver.get(self.origin + "/" + fragment)
        self.until(lambda: self.find("#only").text not in ("", "Connecting") or self.find("#model").is_displayed())

    def reload(self):
        self.driver.refresh()
        self.until(lambda: self.find("#only").text not in ("", "Connecting") or self.find("#model").is_displayed())

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0])?.textContent ?? null", selector)

    def texts(self, selector):
        return self.run("return [...document.querySelectorAll(arguments[0])].map((node) => node.textContent)", selector)

    def until(self, condition):
        """Waits until condition() is true, and returns what it is."""
        wait = WebDriverWait(self.driver, WAIT_SECONDS, poll_frequency=0.05,
                             ignored_exceptions=[StaleElementReferenceException])
        return wait.until(lambda _: condition())

    def press(self, *keys):
        """Presses keys, one after the other, on whatever has the focus."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def focus(self):
        """The focused element: its id, else its classes."""
        return self.run("const at = document.activeElement; return at.id || at.className")

    def is_answering(self):
        return "stop" in self.find("#send").get_attribute("class").split()

    def ask(self, text):
        """Sends a text with the keyboard, and waits for the whole answer."""
        if text:
            self.find("#text").send_keys(text)
        self.find("#text").send_keys(Keys.ENTER)
        self.until(lambda: not self.is_answering())

    def console(self):
        """What the console has got since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requested(self):
        """The addresses of all requests since the last call."""
        out = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                out.append(message["params"]["request"]["url"])
        return out
