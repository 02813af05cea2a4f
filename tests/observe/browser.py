"""A real browser without a screen, for tests of pages."""

import json
import os
import shutil

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
except ImportError:
    webdriver = None


def chromium():
    """A driver of Debian's chromium, or None where it is not installed. It opens at 1280 × 900."""
    if webdriver is None or not shutil.which("chromium") or not shutil.which("chromedriver"):
        return None
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900",
                     "--disable-background-networking", "--disable-component-update", "--no-first-run"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # chromium refuses to be root with one
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    return webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)


def console(driver):
    """What the page has said on the console since the last call: errors, refused requests."""
    return [entry["message"] for entry in driver.get_log("browser")]


def requests(driver):
    """Addresses that the page asked for since the last call, without those of data in the page itself."""
    asked = []
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.append(message["params"]["request"]["url"])
    return [url for url in asked if not url.startswith("data:")]


def resize(driver, width, height):
    """The page's own size, as a telephone has it: a window cannot be as narrow."""
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                           {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
