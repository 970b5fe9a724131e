"""app.py ADDRESS PORT: an application that takes the path of a request in the ways that users of Python
write, and says by which of them it was asked for /login, or for the host admin.example.com."""

import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urljoin, urlparse, urlsplit


def loose(path):
    """Many applications decode a path before they look for its route, merge slashes, or leave one at the end out."""
    path = re.sub("/+", "/", unquote(path))
    return path[:-1] if len(path) > 1 and path.endswith("/") else path


class Application(BaseHTTPRequestHandler):
    def do_POST(self):
        # Newer versions of http.server merge the slashes at the start of self.path; other servers do not.
        target = self.requestline.split()[1]
        host = self.headers.get("Host", "")
        paths = {
            "urlsplit": lambda: urlsplit(target).path,
            "urlparse": lambda: urlparse(target).path,
            "urlparse of what was decoded": lambda: urlparse(unquote(target)).path,
            "urljoin": lambda: urlsplit(urljoin("http://localhost/", target)).path,
            "urlparse of urljoin": lambda: urlparse(urljoin("http://localhost/", target)).path,
            "urlsplit of self.path": lambda: urlsplit(self.path).path,
            "self.path": lambda: self.path.split("?")[0],
        }
        hosts = {
            "urljoin": lambda: urlsplit(urljoin("http://" + host, target)).hostname,
            "Host": lambda: host.split(":")[0],
        }
        found = ["app.py"]
        for name, take in paths.items():
            if attempt(take) == "/login":
                found.append("login by " + name)
            if attempt(lambda: loose(take())) == "/login":
                found.append("login by " + name + ", decoded")
        for name, take in hosts.items():
            if (attempt(take) or "").lower() == "admin.example.com":
                found.append("admin by " + name)
        body = ("\n".join(found) + "\n").encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def attempt(take):
    try:
        return take()
    except ValueError:
        return ""  # an application answers 400


ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Application).serve_forever()
