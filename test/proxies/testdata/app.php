<?php
// The router of `php -S`: an application that takes the path of a request in the ways that users of PHP
// write, and says by which of them it was asked for /login, or for the host admin.example.com.

// Many applications decode a path before they look for its route, merge slashes, or leave one at the end out.
function loose(string $path): string
{
    $path = preg_replace('#/+#', '/', rawurldecode($path));
    return strlen($path) > 1 && $path[-1] === '/' ? substr($path, 0, -1) : $path;
}

$uri = $_SERVER['REQUEST_URI'];
$host = $_SERVER['HTTP_HOST'];
$paths = [
    'parse_url' => parse_url($uri, PHP_URL_PATH),
    'parse_url with Host' => parse_url('http://' . $host . $uri, PHP_URL_PATH),
    'strtok' => strtok($uri, '?'),
    'SCRIPT_NAME' => $_SERVER['SCRIPT_NAME'],
    'PHP_SELF' => $_SERVER['PHP_SELF'],
];
$hosts = [
    'parse_url' => parse_url($uri, PHP_URL_HOST) ?: parse_url('http://' . $host, PHP_URL_HOST),
    'HTTP_HOST' => explode(':', $host)[0],
];

header('Content-Type: text/plain');
echo "app.php\n";
foreach ($paths as $name => $path) {
    if ($path === '/login') {
        echo "login by $name\n";
    }
    if (is_string($path) && loose($path) === '/login') {
        echo "login by $name, decoded\n";
    }
}
foreach ($hosts as $name => $asked) {
    if (is_string($asked) && strtolower($asked) === 'admin.example.com') {
        echo "admin by $name\n";
    }
}
