// app.js ADDRESS PORT: an application that takes the path of a request in the ways that users of Node
// write, and says by which of them it was asked for /login, or for the host admin.example.com.
const http = require("node:http");
const url = require("node:url");

const paths = {
  "new URL": (request) => new URL(request.url, "http://localhost").pathname,
  "new URL with Host": (request) => new URL(request.url, `http://${request.headers.host}`).pathname,
  "url.parse": (request) => url.parse(request.url).pathname,
  "req.url": (request) => request.url.split("?")[0],
};

const hosts = {
  "new URL": (request) => new URL(request.url, `http://${request.headers.host}`).hostname,
  "Host": (request) => request.headers.host.split(":")[0],
};

// Many applications decode a path before they look for its route, merge slashes, or leave one at the end out.
const loose = (path) => decodeURIComponent(path).replace(/\/+/g, "/").replace(/(.)\/$/, "$1");

function attempt(take, request) {
  try {
    return take(request);
  } catch {
    return ""; // an application answers 400
  }
}

const server = http.createServer((request, response) => {
  const found = [];
  for (const [name, take] of Object.entries(paths)) {
    if (attempt(take, request) === "/login") found.push(`login by ${name}`);
    if (attempt((request) => loose(take(request)), request) === "/login") found.push(`login by ${name}, decoded`);
  }
  for (const [name, take] of Object.entries(hosts)) {
    if (attempt(take, request).toLowerCase() === "admin.example.com") found.push(`admin by ${name}`);
  }
  request.resume();
  response.setHeader("Content-Type", "text/plain");
  response.end(`app.js\n${found.join("\n")}\n`);
});
server.listen(Number(process.argv[3]), process.argv[2]);
