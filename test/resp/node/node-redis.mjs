// node-redis with its default options, but for the version of the protocol, unless that is "default".
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createClient, createClientPool } from 'redis'
import { about } from './about.mjs'

const throttle = (...args) => ['CL.THROTTLE', ...args.map(String)]

export async function nodeRedis({ port, version, token, ca }) {
  const options = {
    socket: { port: Number(port), host: '127.0.0.1', ...(ca && { tls: true, ca: readFileSync(ca) }) },
    ...(token && { password: token }),
    ...(version !== 'default' && { RESP: Number(version) }),
  }
  const client = createClient(options)
  client.on('error', (error) => assert.fail(error))
  await client.connect()

  const own = `nr-${version}`
  assert.deepEqual(await client.sendCommand(throttle(own, 15, 30, 3600)), [0, 16, 15, -1, 120])
  assert.equal(await client.ping(), 'PONG')
  about(await client.ttl(own), 120)
  assert.equal(await client.exists([own, 'else']), 1)
  assert.equal(await client.del(own), 1)
  assert.equal(await client.pTTL(own), -2)
  assert.match(await client.info('server'), /redis_version:7/)
  assert.ok((await client.clientId()) > 0)
  assert.deepEqual({ ...(await client.configGet('databases')) }, { databases: '16' })
  await assert.rejects(client.get(own), /ERR unknown command/)
  await assert.rejects(client.sendCommand(throttle(own, 15, 30, 'long')), /ERR period is "long"/)

  // multi() as a transaction, and as a pipeline.
  for (const exec of ['exec', 'execAsPipeline']) {
    const key = `${own}-${exec}`
    const answers = await client
      .multi()
      .addCommand(throttle(key, 2, 1, 3600, 2))
      .addCommand(throttle(key, 2, 1, 3600, 2))
      .ttl(key)
      .unlink(key)
      .ping()
      [exec]()
    assert.deepEqual([answers[0], answers[1].slice(0, 3)], [[0, 3, 1, -1, 7200], [1, 3, 1]], exec)
    about(answers[1][3], 3600)
    about(answers[1][4], 7200)
    about(answers[2], 7200)
    assert.deepEqual(answers.slice(3), [1, 'PONG'], exec)
    await assert.rejects(client.multi().addCommand(throttle(key, 2, 1, 'long')).ping()[exec](), (error) => {
      assert.match(String(error.replies?.[0] ?? error), /ERR period is "long"/)
      if (exec === 'exec') assert.equal(error.replies[1], 'PONG') // a pipeline rejects with the error alone
      return true
    })
  }

  // Exactly the limit is admitted, on one connection and by a pool.
  const pool = createClientPool(options, { maximum: 16, acquireTimeout: 30_000 }) // a busy machine is no fault
  pool.on('error', (error) => assert.fail(error))
  await pool.connect()
  for (const all of [client, pool]) {
    const key = `${own}-all-${all === pool}`
    const answers = await Promise.all(Array.from({ length: 1000 }, () => all.sendCommand(throttle(key, 99, 1, 86400))))
    assert.equal(answers.filter(([limited]) => limited === 0).length, 100)
  }
  await pool.close()

  if (token) {
    const stranger = createClient({ ...options, password: undefined, socket: { ...options.socket, reconnectStrategy: false } })
    stranger.on('error', () => {})
    await assert.rejects(async () => {
      await stranger.connect()
      await stranger.sendCommand(throttle('k', 15, 30, 3600))
    }, /NOAUTH/)
    if (stranger.isOpen) stranger.destroy()
  }
  await client.close()
}
