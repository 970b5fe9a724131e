// ioredis with its default options, but for the version of the protocol, unless that is "default".
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import Redis from 'ioredis'
import { about } from './about.mjs'

export async function ioredis({ port, version, token, ca }) {
  const options = {
    port: Number(port),
    ...(version !== 'default' && { protocol: Number(version) }),
    ...(token && { password: token }),
    ...(ca && { tls: { ca: readFileSync(ca) } }),
  }

  const own = `io-${version}`
  const redis = new Redis(options)
  redis.on('error', (error) => assert.fail(error))

  assert.deepEqual(await redis.call('CL.THROTTLE', own, 15, 30, 3600), [0, 16, 15, -1, 120])
  assert.equal(await redis.ping(), 'PONG')
  about(await redis.ttl(own), 120)
  assert.equal(await redis.exists(own, 'else'), 1)
  assert.equal(await redis.del(own), 1)
  assert.equal(await redis.ttl(own), -2)
  assert.match(await redis.info(), /redis_version:7/)
  await assert.rejects(redis.get(own), /ERR unknown command/)
  await assert.rejects(redis.call('CL.THROTTLE', own, 15, 30, 'long'), /ERR period is "long"/)

  // Pipelines and transactions, with an error among the answers.
  for (const [name, open] of [['pipeline', () => redis.pipeline()], ['multi', () => redis.multi()]]) {
    const key = `${own}-${name}`
    const answers = await open()
      .call('CL.THROTTLE', key, 2, 1, 3600, 2)
      .call('CL.THROTTLE', key, 2, 1, 'long')
      .call('CL.THROTTLE', key, 2, 1, 3600, 2)
      .ttl(key)
      .unlink(key)
      .ping()
      .exec()
    assert.deepEqual(answers[0], [null, [0, 3, 1, -1, 7200]])
    assert.match(String(answers[1][0]), /ERR period is "long"/)
    assert.deepEqual([answers[2][0], answers[2][1].slice(0, 3)], [null, [1, 3, 1]])
    about(answers[2][1][3], 3600)
    about(answers[2][1][4], 7200)
    about(answers[3][1], 7200)
    assert.deepEqual(answers.slice(4), [[null, 1], [null, 'PONG']], name)
  }
  // A transaction without a pipeline, command by command.
  await redis.multi({ pipeline: false })
  assert.equal(await redis.call('CL.THROTTLE', `${own}-slow`, 2, 1, 3600), 'QUEUED')
  assert.deepEqual(await redis.exec(), [[null, [0, 3, 2, -1, 3600]]])

  // Exactly the limit is admitted, on one connection and with pipelines that the client makes by itself.
  const auto = new Redis({ ...options, enableAutoPipelining: true })
  for (const client of [redis, auto]) {
    const key = `${own}-all-${client === auto}`
    const answers = await Promise.all(Array.from({ length: 1000 }, () => client.call('CL.THROTTLE', key, 99, 1, 86400)))
    assert.equal(answers.filter(([limited]) => limited === 0).length, 100)
  }

  if (token) {
    const stranger = new Redis({ ...options, password: undefined, retryStrategy: null, lazyConnect: true })
    stranger.on('error', () => {})
    await assert.rejects(stranger.call('CL.THROTTLE', own, 15, 30, 3600), /NOAUTH|Connection is closed/)
    stranger.disconnect()
  }
  assert.equal(await redis.quit(), 'OK')
  auto.disconnect()
}
