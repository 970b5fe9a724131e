"""redis-py with its default options. Arguments: port, and of a service that needs them a token and an authority's file."""

import sys
import threading

import redis

port, token, ca = (sys.argv[1:] + ["", ""])[:3]
options = {"port": int(port)}
if token:
    options["password"] = token
if ca:
    options.update(ssl=True, ssl_ca_certs=ca)


def same(got, want):
    if got != want:
        raise AssertionError(f"got {got}, want {want}")


def about(got, want):
    """Compares seconds, of which some may have passed."""
    same(want - 30 <= got <= want and want, want)


def fails(do, text):
    try:
        got = do()
    except redis.ResponseError as error:
        same(text in str(error) and text, text)
        return
    raise AssertionError(f"got {got}, want an error with {text}")


client = redis.Redis(**options)
same(client.execute_command("CL.THROTTLE", "py", 15, 30, 3600), [0, 16, 15, -1, 120])
same(client.ping(), True)
about(client.ttl("py"), 120)
same(client.exists("py", "else"), 1)
same(client.delete("py"), 1)
same(client.pttl("py"), -2)
same(client.info("server")["redis_version"][0], "7")
same(client.config_get("databases"), {"databases": "16"})
same(client.client_id() > 0, True)
same(client.client_setname("app"), True)
same(client.command_count() > 0, True)
same("cl.throttle" in client.command(), True)
fails(lambda: client.get("py"), "unknown command")
fails(lambda: client.execute_command("CL.THROTTLE", "py", 15, 30, "long"), 'period is "long"')

for transaction in (True, False):
    key = f"py-{transaction}"
    pipe = client.pipeline(transaction=transaction)
    pipe.execute_command("CL.THROTTLE", key, 2, 1, 3600, 2)
    pipe.execute_command("CL.THROTTLE", key, 2, 1, 3600, 2)
    pipe.ttl(key)
    pipe.unlink(key)
    pipe.ping()
    answers = pipe.execute()
    same(answers[0], [0, 3, 1, -1, 7200])
    same(answers[1][:3], [1, 3, 1])
    about(answers[1][3], 3600)
    about(answers[1][4], 7200)
    about(answers[2], 7200)
    same(answers[3:], [1, True])
    # The errors of a pipeline, each in its place.
    pipe.execute_command("CL.THROTTLE", key, 2, 1, "long")
    pipe.execute_command("CL.THROTTLE", key, 2, 1, 3600)
    answers = pipe.execute(raise_on_error=False)
    same('period is "long"' in str(answers[0]), True)
    same(answers[1], [0, 3, 2, -1, 3600])

# Exactly the limit is admitted to 64 threads of a pool.
admitted, lock = [], threading.Lock()


def ask():
    for _ in range(20):
        if client.execute_command("CL.THROTTLE", "py-all", 99, 1, 86400)[0] == 0:
            with lock:
                admitted.append(1)


threads = [threading.Thread(target=ask) for _ in range(64)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
same(len(admitted), 100)

if token:
    stranger = redis.Redis(**{**options, "password": None})
    try:
        stranger.ping()
        raise AssertionError("a client without a token was answered")
    except redis.AuthenticationError:
        pass
    wrong = redis.Redis(**{**options, "password": "wrong"})
    try:
        wrong.ping()
        raise AssertionError("a client with a wrong token was answered")
    except redis.RedisError as error:
        same("WRONGPASS" in str(error) or "invalid username-password pair" in str(error), True)
client.close()
print("all as expected")
